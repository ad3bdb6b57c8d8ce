#include "server/http/llama_input.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "handlers/json_fields.h"
#include "handlers/request_fields.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostExtraFiles = 256;

// `logit_bias` as an object of token ids: it may be a list of pairs, and a text
// stands for each of its tokens.
StatusOr<Json> Biases(const handlers::GenerateHandler& handler,
                      const Json& bias) {
  const auto too_many = [](size_t size) {
    return InvalidArgument("logit_bias holds " + std::to_string(size) +
                           " tokens or more but may hold at most " +
                           std::to_string(handlers::kMaxLogitBias))
        .At("logit_bias");
  };
  if (bias.size() > handlers::kMaxLogitBias) return too_many(bias.size());
  Json map = Json::object();
  const auto add = [&](const std::string& text, const Json& value) -> Status {
    const Json number = value == false ? Json(-100) : value;
    const bool is_id = !text.empty() && std::ranges::all_of(text, [](char c) {
      return c >= '0' && c <= '9';
    });
    if (is_id) {
      map[text] = number;
      return OkStatus();
    }
    ASSIGN_OR_RETURN(const auto tokens, handler.Tokenize(text, false, false));
    const size_t most = map.size() + tokens.ids.size();
    if (most > handlers::kMaxLogitBias) return too_many(most);
    for (const int32_t id : tokens.ids) map[std::to_string(id)] = number;
    return OkStatus();
  };
  if (bias.is_object()) {
    for (const auto& [key, value] : bias.items()) {
      RETURN_IF_ERROR(add(key, value));
    }
    return map;
  }
  for (size_t i = 0; i < bias.size(); ++i) {
    const Json& pair = bias[i];
    const bool is_pair = pair.is_array() && pair.size() == 2 &&
                         (pair[0].is_number_integer() || pair[0].is_string());
    if (!is_pair) {
      return handlers::WrongType("logit_bias[" + std::to_string(i) + "]",
                                 "a token id or a text with its bias", pair);
    }
    if (pair[0].is_string()) {
      RETURN_IF_ERROR(add(pair[0].get<std::string>(), pair[1]));
      continue;
    }
    ASSIGN_OR_RETURN(
        const int64_t id,
        handlers::AsInt(pair[0], "logit_bias[" + std::to_string(i) + "][0]",
                        {.min = 0, .max = INT32_MAX}));
    RETURN_IF_ERROR(add(std::to_string(id), pair[1]));
  }
  return map;
}

// n_predict, by any of its names; absent: -1.
StatusOr<int64_t> ReadPredict(const Json& body) {
  for (const char* name :
       {"n_predict", "max_completion_tokens", "max_tokens"}) {
    ASSIGN_OR_RETURN(const auto most, handlers::ReadInt(body, name));
    if (most) return std::max<int64_t>(*most, -1);
  }
  return -1;
}

// The body's sampling fields in the words of a completion.
StatusOr<Json> SamplingFields(const handlers::GenerateHandler& handler,
                              const Json& body, int64_t n_predict) {
  Json fields = body;
  for (const char* name :
       {"prompt", "n_predict", "max_completion_tokens", "max_tokens", "suffix",
        "echo", "post_sampling_probs"}) {
    fields.erase(name);
  }
  if (n_predict >= 0) fields["max_tokens"] = std::max<int64_t>(n_predict, 1);
  // -1 and its unsigned form mean a seed of the server's choice.
  const Json* seed = handlers::FindField(body, "seed");
  if (seed != nullptr && (*seed == -1 || *seed == 4294967295)) {
    fields.erase("seed");
  }
  const Json* bias = handlers::FindField(body, "logit_bias");
  if (bias != nullptr && (bias->is_array() || bias->is_object())) {
    ASSIGN_OR_RETURN(fields["logit_bias"], Biases(handler, *bias));
  }
  // 0 asks for none, where a completion's 0 asks for the token's own.
  for (const char* name : {"logprobs", "n_probs"}) {
    if (const Json* probs = handlers::FindField(body, name)) {
      if (*probs == 0 || *probs == false) fields.erase(name);
    }
  }
  return fields;
}

StatusOr<std::vector<std::string>> ReadResponseFields(const Json& body) {
  std::vector<std::string> names;
  ASSIGN_OR_RETURN(const Json* list,
                   handlers::ReadArray(body, "response_fields"));
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    ASSIGN_OR_RETURN(
        names.emplace_back(),
        handlers::AsString((*list)[i],
                           "response_fields[" + std::to_string(i) + "]"));
  }
  return names;
}

// The special tokens around a gap: prefix, suffix, middle; then those before a
// repository's name and before a file's, where there are such.
constexpr std::array<const char*, 5> kGapTokens[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>",
     "<|file_sep|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<repo_name>",
     "<file_sep>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<reponame>",
     "<filename>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", "<reponame>",
     "<filename>"},
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", "", ""},
};
constexpr size_t kGap = 3;

// Their ids: 5, 3 where there are none for files, 0 where there are none.
std::vector<int32_t> GapIds(const handlers::GenerateHandler& handler) {
  std::vector<int32_t> most;
  for (const auto& names : kGapTokens) {
    std::vector<int32_t> ids;
    for (const char* name : names) {
      const auto text = handler.Tokenize(name, false, true);
      if (!text.ok() || text->ids.size() != 1) break;
      ids.push_back(text->ids[0]);
    }
    if (ids.size() < kGap) continue;
    if (ids.size() < names.size()) ids.resize(kGap);
    if (ids.size() > most.size()) most = std::move(ids);
  }
  return most;
}

// Builds a prompt of special tokens and texts of the client.
class InfillPrompt {
 public:
  explicit InfillPrompt(const handlers::GenerateHandler& handler)
      : handler_(handler) {}

  void Mark(int32_t id) { ids_.push_back(id); }
  Status Add(const std::string& text) {
    ASSIGN_OR_RETURN(const handlers::TokenizedText tokens,
                     handler_.Tokenize(text, false, false));
    ids_.insert(ids_.end(), tokens.ids.begin(), tokens.ids.end());
    return OkStatus();
  }
  std::vector<int32_t> Take() { return std::move(ids_); }

 private:
  const handlers::GenerateHandler& handler_;
  std::vector<int32_t> ids_;
};

// Other files: [{"filename": "a.h", "text": "..."}].
Status AddExtraFiles(const Json& body, const std::vector<int32_t>& gap,
                     InfillPrompt& prompt) {
  ASSIGN_OR_RETURN(const Json* files, handlers::ReadArray(body, "input_extra"));
  if (files == nullptr || files->empty()) return OkStatus();
  if (files->size() > kMostExtraFiles) {
    return InvalidArgument(
               "input_extra holds " + std::to_string(files->size()) +
               " files but may hold at most " + std::to_string(kMostExtraFiles))
        .At("input_extra");
  }
  const bool marked = gap.size() > kGap;
  if (marked) {
    prompt.Mark(gap[kGap]);
    RETURN_IF_ERROR(prompt.Add("repository\n"));
  }
  for (size_t i = 0; i < files->size(); ++i) {
    const Json& file = (*files)[i];
    const std::string path = "input_extra[" + std::to_string(i) + "]";
    if (!file.is_object()) {
      return handlers::WrongType(path, "an object with filename and text",
                                 file);
    }
    const auto read = [&](const char* name) -> StatusOr<std::string> {
      const Json* text = handlers::FindField(file, name);
      const std::string at = path + "." + name;
      if (text == nullptr) return InvalidArgument(at + " is missing").At(at);
      return handlers::AsString(*text, at);
    };
    ASSIGN_OR_RETURN(const std::string name, read("filename"));
    ASSIGN_OR_RETURN(const std::string text, read("text"));
    if (marked) {
      prompt.Mark(gap[kGap + 1]);
      RETURN_IF_ERROR(prompt.Add(name + "\n"));
      RETURN_IF_ERROR(prompt.Add(text));
    } else {
      RETURN_IF_ERROR(prompt.Add(name + ":\n" + text + "\n\n"));
    }
  }
  if (!marked) return OkStatus();
  prompt.Mark(gap[kGap + 1]);  // the file that has the gap
  return prompt.Add("current\n");
}

}  // namespace

StatusOr<LlamaBody> ReadLlamaBody(const handlers::GenerateHandler& handler,
                                  const Json& body) {
  LlamaBody wanted;
  ASSIGN_OR_RETURN(wanted.n_predict, ReadPredict(body));
  ASSIGN_OR_RETURN(const Json fields,
                   SamplingFields(handler, body, wanted.n_predict));
  ASSIGN_OR_RETURN(wanted.options,
                   handlers::ReadGenerateOptions(
                       fields, handlers::FieldDialect::kCompletions));
  wanted.options.clip_to_context = true;
  ASSIGN_OR_RETURN(const auto stream, handlers::ReadBool(body, "stream"));
  ASSIGN_OR_RETURN(const auto ids, handlers::ReadBool(body, "return_tokens"));
  ASSIGN_OR_RETURN(const auto timings,
                   handlers::ReadBool(body, "timings_per_token"));
  ASSIGN_OR_RETURN(const auto sampled,
                   handlers::ReadBool(body, "post_sampling_probs"));
  wanted.post_sampling_probs =
      sampled.value_or(false) && wanted.options.logprobs.has_value();
  wanted.stream = stream.value_or(false);
  wanted.return_tokens = ids.value_or(false);
  wanted.timings_per_token = timings.value_or(false);
  // As there, pieces of a stream have theirs anyway.
  wanted.options.return_ids = wanted.return_tokens || wanted.stream;
  ASSIGN_OR_RETURN(wanted.response_fields, ReadResponseFields(body));
  return wanted;
}

StatusOr<handlers::TokenPrompt> ReadInfillPrompt(
    const handlers::GenerateHandler& handler, const Json& body,
    const std::string& model) {
  const std::vector<int32_t> gap = GapIds(handler);
  if (gap.empty()) {
    return InvalidArgument("the model '" + model +
                           "' has no tokens to fill in the middle of a text; "
                           "complete text with POST /v1/completions")
        .Because("no_infill_tokens");
  }
  InfillPrompt prompt(handler);
  RETURN_IF_ERROR(AddExtraFiles(body, gap, prompt));
  constexpr const char* kTexts[kGap] = {"input_prefix", "input_suffix",
                                        "prompt"};
  for (size_t i = 0; i < kGap; ++i) {
    ASSIGN_OR_RETURN(const auto text, handlers::ReadString(body, kTexts[i]));
    prompt.Mark(gap[i]);
    RETURN_IF_ERROR(prompt.Add(text.value_or("")));
  }
  return handlers::TokenPrompt{prompt.Take()};
}

Json WithoutInfillSampler(Json body) {
  const auto samplers = body.find("samplers");
  if (samplers == body.end()) return body;
  if (samplers->is_array()) {
    auto& names = samplers->get_ref<Json::array_t&>();
    std::erase(names, Json("infill"));
  } else if (samplers->is_string()) {
    std::erase(samplers->get_ref<std::string&>(), 'i');
  }
  return body;
}

}  // namespace millrace::server::http
