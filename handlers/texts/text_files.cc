// Numbers in these files are wishes, not limits: model_max_length may be 1e30.
// The least of them counts.
#include "handlers/texts/text_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "config/task_settings.h"
#include "handlers/tasks/labels.h"
#include "models/text/hf_tokenizer.h"
#include "models/text/sentence_files.h"

namespace millrace::handlers {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kDefaultMaxTokens = 512;
constexpr int64_t kMostTokens = 1 << 20;
constexpr int64_t kMaxFileBytes = int64_t{256} << 20;
constexpr int64_t kMaxLabels = 100'000;

StatusOr<std::string> ReadFile(const std::string& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error || bytes > static_cast<uint64_t>(kMaxFileBytes)) {
    return InvalidArgument("'" + path + "' cannot be read or is larger than " +
                           std::to_string(kMaxFileBytes >> 20) + " MiB");
  }
  std::ifstream in(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)),
                   std::istreambuf_iterator<char>());
  if (!in) return InvalidArgument("'" + path + "' cannot be read");
  return text;
}

// Beside the graph or in the folder above; nothing when it is in neither.
std::optional<std::string> Beside(const TaskParts& parts,
                                  const std::string& name) {
  const fs::path beside = fs::path(parts.path).parent_path();
  for (const fs::path& folder : {beside, beside.parent_path()}) {
    std::error_code error;
    const fs::path file = folder / name;
    if (fs::is_regular_file(file, error)) return file.string();
  }
  return std::nullopt;
}

// What `read` makes of such a file; `otherwise` when there is none.
template <typename T>
StatusOr<T> Optional(const TaskParts& parts, const std::string& name,
                     StatusOr<T> (*read)(std::string_view), T otherwise) {
  const std::optional<std::string> file = Beside(parts, name);
  if (!file) return otherwise;
  ASSIGN_OR_RETURN(const std::string text, ReadFile(*file));
  StatusOr<T> out = read(text);
  if (!out.ok()) return out.status().Prefixed("'" + *file + "'");
  return out;
}

StatusOr<Json> Optional(const TaskParts& parts, const std::string& name) {
  return Optional<Json>(
      parts, name, [](std::string_view text) { return ParseJson(text); },
      Json());
}

// The number, or `otherwise` where there is none that makes sense.
int64_t NumberOr(const Json& json, const char* key, int64_t otherwise) {
  if (!json.is_object()) return otherwise;
  const auto it = json.find(key);
  if (it == json.end() || !it->is_number_integer()) return otherwise;
  const auto number = it->get<int64_t>();
  return number < 1 || number > kMostTokens ? otherwise : number;
}

// Positions of RoBERTa begin behind that of the padding.
int64_t PositionsOf(const Json& config) {
  const int64_t positions =
      NumberOr(config, "max_position_embeddings", kMostTokens);
  const Json type =
      config.is_object() ? config.value("model_type", Json()) : Json();
  const bool offset = type == "roberta" || type == "xlm-roberta" ||
                      type == "camembert" || type == "mpnet";
  return offset ? positions - NumberOr(config, "pad_token_id", 1) - 1
                : positions;
}

Status ReadLengths(const TaskParts& parts, const Json& config, TextFiles& out) {
  const int64_t positions = PositionsOf(config);
  const int64_t asked = parts.settings->text.max_length;
  if (asked > positions) {
    return InvalidArgument("max_length is " + std::to_string(asked) +
                           " but the model has " + std::to_string(positions) +
                           " positions; use a smaller one")
        .At("max_length");
  }
  ASSIGN_OR_RETURN(const Json sentence,
                   Optional(parts, "sentence_bert_config.json"));
  ASSIGN_OR_RETURN(const Json tokens, Optional(parts, "tokenizer_config.json"));
  int64_t least = NumberOr(sentence, "max_seq_length", kMostTokens);
  if (least == kMostTokens) {
    least = NumberOr(tokens, "model_max_length", kMostTokens);
  }
  least = std::min(least, positions);
  out.max_tokens = asked > 0              ? asked
                   : least == kMostTokens ? kDefaultMaxTokens
                                          : least;
  const int64_t around = out.form.NumAdded(true);
  if (out.max_tokens <= around) {
    return InvalidArgument("max_length is " + std::to_string(out.max_tokens) +
                           " but " + std::to_string(around) +
                           " tokens stand around two texts; use a larger one")
        .At("max_length");
  }
  return OkStatus();
}

Status ReadPooling(const TaskParts& parts, TextFiles& out) {
  const config::TextTaskSettings& settings = parts.settings->text;
  if (settings.pooling != "auto") {
    ASSIGN_OR_RETURN(out.pooling, PoolingFromName(settings.pooling));
  } else {
    ASSIGN_OR_RETURN(const std::string mode,
                     Optional<std::string>(parts, "1_Pooling/config.json",
                                           &models::ReadPoolingMode, ""));
    if (!mode.empty()) {
      ASSIGN_OR_RETURN(out.pooling, PoolingFromName(mode));
    }
  }
  ASSIGN_OR_RETURN(
      const bool has_step,
      Optional<bool>(parts, "modules.json", &models::ReadNormalizes, true));
  out.normalize =
      settings.normalize == "auto" ? has_step : settings.normalize == "true";
  return OkStatus();
}

// {"0": "calm", "1": "glad"}; those of transformers' making say nothing.
void ReadLabels(const Json& config, TextFiles& out) {
  if (!config.is_object()) return;
  const Json names = config.value("id2label", Json());
  if (!names.is_object() || names.size() > static_cast<size_t>(kMaxLabels)) {
    return;
  }
  out.labels.resize(names.size());
  for (const auto& [key, name] : names.items()) {
    char* end = nullptr;
    const unsigned long at = std::strtoul(key.c_str(), &end, 10);
    if (*end != '\0' || at >= out.labels.size() || !name.is_string()) continue;
    out.labels[at] = name.get<std::string>();
  }
}

std::string TextOf(const Json& json, const char* key) {
  const auto it = json.is_object() ? json.find(key) : json.end();
  return it != json.end() && it->is_string() ? it->get<std::string>() : "";
}

// The class of torch.nn that sentence-transformers saved; empty: none.
StatusOr<std::string> ActivationOfFunction(const Json& config) {
  const char* key = "sentence_transformers.activation_fn";
  std::string name = TextOf(
      config.value("sentence_transformers", Json::object()), "activation_fn");
  if (name.empty()) {
    key = "sbert_ce_default_activation_function";
    name = TextOf(config, key);
  }
  if (name.empty()) return name;
  constexpr std::pair<std::string_view, const char*> kFunctions[] = {
      {"torch.nn.modules.linear.Identity", "none"},
      {"torch.nn.modules.activation.Sigmoid", "sigmoid"},
      {"torch.nn.modules.activation.Softmax", "softmax"},
  };
  for (const auto& [theirs, ours] : kFunctions) {
    if (name == theirs) return std::string(ours);
  }
  return Unimplemented(std::string(key) + " is '" + Shortened(name, 100) +
                       "'; Identity, Sigmoid and Softmax of torch.nn.modules "
                       "are supported; or set activation in task_options")
      .At("activation");
}

}  // namespace

StatusOr<std::string> ActivationOf(const TaskParts& parts) {
  if (parts.settings->activation != "auto") return parts.settings->activation;
  std::string activation = "softmax";
  const config::TaskKind kind = parts.settings->kind;
  if (kind != config::TaskKind::kClassifyText &&
      kind != config::TaskKind::kRerank) {
    return activation;
  }
  ASSIGN_OR_RETURN(const Json config, Optional(parts, "config.json"));
  if (!config.is_object()) return activation;
  const std::string problem = TextOf(config, "problem_type");
  if (problem == "regression") return std::string("none");
  if (problem == "multi_label_classification") return std::string("sigmoid");
  if (problem == "single_label_classification") return activation;
  ASSIGN_OR_RETURN(const std::string named, ActivationOfFunction(config));
  return named.empty() ? activation : named;
}

Pooling PoolingOfGguf(int64_t type) {
  return type == 2   ? Pooling::kCls
         : type == 3 ? Pooling::kLast
                     : Pooling::kMean;
}

StatusOr<TextFiles> TextFilesOf(
    std::shared_ptr<const models::Tokenizer> tokenizer,
    models::PostProcessor form, const config::TextTaskSettings& text,
    Pooling pooling, int64_t max_tokens) {
  TextFiles out;
  out.form = std::move(form);
  out.tokenizer = std::move(tokenizer);
  if (text.max_length > max_tokens) {
    return InvalidArgument("max_length is " + std::to_string(text.max_length) +
                           " but the model takes " +
                           std::to_string(max_tokens) +
                           " tokens; use a smaller one")
        .At("max_length");
  }
  out.max_tokens = text.max_length > 0 ? text.max_length : max_tokens;
  out.pooling = pooling;
  if (text.pooling != "auto") {
    ASSIGN_OR_RETURN(out.pooling, PoolingFromName(text.pooling));
  }
  out.normalize = text.normalize != "false";
  return out;
}

StatusOr<TextFiles> ReadTextFiles(const TaskParts& parts, Pooling pooling) {
  TextFiles out;
  out.pooling = pooling;
  ASSIGN_OR_RETURN(
      const std::string path,
      FindTaskFile(parts, "tokenizer", parts.settings->text.tokenizer));
  ASSIGN_OR_RETURN(const std::string json, ReadFile(path));
  const auto read = [&]() -> Status {
    ASSIGN_OR_RETURN(models::Vocabulary vocabulary,
                     models::ReadHfTokenizer(json, {.template_apart = true}));
    ASSIGN_OR_RETURN(out.tokenizer,
                     models::Tokenizer::Create(std::move(vocabulary)));
    ASSIGN_OR_RETURN(out.form,
                     models::PostProcessor::FromJson(json, *out.tokenizer));
    return OkStatus();
  };
  RETURN_IF_ERROR(read().Prefixed("'" + path + "'"));
  ASSIGN_OR_RETURN(const Json config, Optional(parts, "config.json"));
  for (const char* pad : {"[PAD]", "<pad>"}) {
    if (const auto id = out.tokenizer->IdOfSpecial(pad)) out.pad_id = *id;
  }
  RETURN_IF_ERROR(ReadLengths(parts, config, out));
  RETURN_IF_ERROR(ReadPooling(parts, out));
  ReadLabels(config, out);
  if (parts.settings->labels.empty()) return out;
  ASSIGN_OR_RETURN(const Labels labels, Labels::Load(parts));
  out.labels.clear();
  for (int64_t i = 0; i < labels.size(); ++i) {
    out.labels.push_back(labels.NameOf(i));
  }
  return out;
}

}  // namespace millrace::handlers
