// millrace logits: feeds given tokens and writes what the model says after
// each. Nothing is sampled, so two engines can be compared position by
// position, however their arithmetic differs.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "config/base/json.h"
#include "models/llm/teacher_forcing.h"
#include "server/cli/args.h"
#include "server/cli/model_kind.h"
#include "server/cli/tool_model.h"

namespace millrace::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kTop = 20;

constexpr FlagSpec kFlags[] = {
    {"tokens", "FILE", "JSON: a list of token ids, or a list of such lists"},
    {"out", "FILE", "where to write (default: standard output)"},
    {"raw", "", "all logits as f32, [position][vocabulary], instead of JSON"},
    {"first", "N", "leave out positions before N (default 0)"},
    {"chunk", "N", "tokens a step (default 0: as many as fit)"},
    kComputeFlag,
    kGemmFlag,
    kQuantizeFlag,
    kKvFlag,
    kThreadsFlag,
    kIsaFlag,
    kDeviceFlag,
};
constexpr VerbSpec kVerb = {
    "logits",
    "MODEL --tokens FILE",
    "Teacher-forced logits: for each position of the given tokens the 20 "
    "greatest\nlogits that follow it, the log-sum-exp of all, and the "
    "log-probability of the\ntoken that comes next.",
    kFlags,
    1,
    1};

StatusOr<std::vector<std::vector<int32_t>>> ReadTokens(
    const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return NotFound("the token file '" + path + "' cannot be read");
  const std::string text(std::istreambuf_iterator<char>(in), {});
  StatusOr<Json> parsed = ParseJson(text);
  if (!parsed.ok()) return parsed.status().Prefixed("'" + path + "'");
  Json lists = std::move(parsed).value();
  if (lists.is_array() && !lists.empty() && !lists[0].is_array()) {
    lists = Json::array({lists});
  }
  std::vector<std::vector<int32_t>> sequences;
  bool right = lists.is_array() && !lists.empty();
  for (const Json& list : lists) {
    right = right && list.is_array() && !list.empty();
    if (!right) break;
    auto& ids = sequences.emplace_back();
    for (const Json& id : list) {
      right = right && id.is_number_integer() && id >= 0 && id <= INT32_MAX;
      if (right) ids.push_back(id.get<int32_t>());
    }
  }
  if (right) return sequences;
  return InvalidArgument("'" + path +
                         "' must hold a list of token ids, or a list of lists "
                         "of them, none of them empty");
}

double LogSumExp(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - most);
  return most + std::log(sum);
}

Json Describe(int32_t position, std::span<const float> logits,
              std::span<const int32_t> tokens) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t count = std::min(kTop, order.size());
  std::partial_sort(order.begin(), order.begin() + count, order.end(),
                    [&](int32_t a, int32_t b) {
                      return logits[a] != logits[b] ? logits[a] > logits[b]
                                                    : a < b;
                    });
  Json ids = Json::array();
  Json values = Json::array();
  for (size_t i = 0; i < count; ++i) {
    ids.push_back(order[i]);
    values.push_back(logits[order[i]]);
  }
  const double lse = LogSumExp(logits);
  Json row = {{"position", position},
              {"top_ids", std::move(ids)},
              {"top_logits", std::move(values)},
              {"lse", lse}};
  if (const size_t next = static_cast<size_t>(position) + 1;
      next < tokens.size()) {
    row["next_id"] = tokens[next];
    row["next_logprob"] = logits[tokens[next]] - lse;
  }
  return row;
}

struct CloseFile {
  void operator()(std::FILE* file) const {
    if (file != stdout) std::fclose(file);
  }
};
using OutFile = std::unique_ptr<std::FILE, CloseFile>;

StatusOr<OutFile> OpenOut(const std::string& path) {
  if (path.empty() || path == "-") return OutFile(stdout);
  OutFile file(std::fopen(path.c_str(), "wb"));
  if (file == nullptr) {
    return FailedPrecondition("'" + path + "' cannot be written");
  }
  return file;
}

Status Logits(const ParsedArgs& args) {
  RETURN_IF_ERROR(
      ExpectKind(args.positional()[0], FileKind::kLanguageModel, "logits"));
  if (!args.Has("tokens")) return UsageError("--tokens FILE is needed");
  ASSIGN_OR_RETURN(const int64_t first, args.Int("first", 0, 0, INT32_MAX));
  ASSIGN_OR_RETURN(const int64_t chunk, args.Int("chunk", 0, 0, INT32_MAX));
  ASSIGN_OR_RETURN(const auto sequences, ReadTokens(args.Text("tokens", "")));
  config::LlmSettings settings;
  settings.max_num_seqs = 1;
  ASSIGN_OR_RETURN(ToolModel tool,
                   LoadForTool(args.positional()[0], args, settings));
  ASSIGN_OR_RETURN(const OutFile out, OpenOut(args.Text("out", "")));

  const bool raw = args.Has("raw");
  bool written = true;
  Json all = Json::array();
  for (const std::vector<int32_t>& tokens : sequences) {
    Json rows = Json::array();
    RETURN_IF_ERROR(models::ScoreTokens(
        tool.model, tokens, static_cast<int32_t>(chunk),
        [&](int32_t position, std::span<const float> logits) {
          if (raw) {
            written = written &&
                      std::fwrite(logits.data(), sizeof(float), logits.size(),
                                  out.get()) == logits.size();
          } else {
            rows.push_back(Describe(position, logits, tokens));
          }
        },
        static_cast<int32_t>(first)));
    all.push_back(std::move(rows));
  }
  if (!raw) {
    const models::LlmInfo& info = tool.model.info;
    const Json document = {{"model", args.positional()[0]},
                           {"isa", info.isa},
                           {"threads", info.threads},
                           {"vocab", tool.model.runner->info().vocab_size},
                           {"sequences", std::move(all)}};
    const std::string text = DumpJson(document) + "\n";
    written =
        std::fwrite(text.data(), 1, text.size(), out.get()) == text.size();
  }
  if (!written || std::fflush(out.get()) != 0) {
    return FailedPrecondition(
        "the output cannot be written; is the disk full?");
  }
  return OkStatus();
}

}  // namespace

const VerbSpec& LogitsVerb() { return kVerb; }
int RunLogits(Args args) { return RunVerb(kVerb, args, Logits); }

}  // namespace millrace::server
