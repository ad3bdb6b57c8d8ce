// One list of readers. What is named here, in refused_fields.cc or in
// llama_fields.cc is read or refused; a field that does not change the
// completion (user, metadata, service_tier) is not named at all.
#include "handlers/request_fields.h"

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "config/base/json.h"
#include "handlers/constraint_fields.h"
#include "handlers/json_fields.h"
#include "handlers/llama_fields.h"
#include "handlers/logits_processor_fields.h"
#include "handlers/prediction_field.h"
#include "handlers/refused_fields.h"
#include "handlers/sampler_fields.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopBytes = 1024;
constexpr size_t kMaxStopTokenIds = 1024;
constexpr size_t kMaxAllowedTokenIds = 1 << 18;
constexpr size_t kMaxSuppressTokens = 1 << 18;
constexpr size_t kMaxBadWords = 256;
constexpr size_t kMaxBadWordBytes = 1024;

// Ranges of the fields that are read one by one.
constexpr IntRange kTopLogprobs = {0, kMostTopLogprobs};
constexpr IntRange kCompletions = {1, 128};  // n
constexpr IntRange kLength = {1, INT64_MAX};
constexpr IntRange kPredict = {-1, INT64_MAX};  // n_predict; -1: no limit
constexpr IntRange kMinLength = {0, INT64_MAX};
constexpr IntRange kTopK = {-1, INT32_MAX};
constexpr IntRange kNgramSize = {0, 1024};
constexpr IntRange kPriority = {INT32_MIN, INT32_MAX};

// --- Readers of what is no plain number -------------------------------------

Status ReadCompletions(const Json& body, FieldDialect dialect,
                       GenerateOptions& options) {
  ASSIGN_OR_RETURN(auto n, ReadInt(body, "n", kCompletions));
  ASSIGN_OR_RETURN(const auto llama_n, ReadInt(body, "n_cmpl", kCompletions));
  if (n && llama_n && *n != *llama_n) {
    return TwoNames("n_cmpl", *llama_n, "n", *n);
  }
  if (llama_n) n = llama_n;
  ASSIGN_OR_RETURN(const auto best_of, ReadInt(body, "best_of", kCompletions));
  options.n = static_cast<int32_t>(n.value_or(1));
  if (options.n > 1 && dialect == FieldDialect::kSamplingParameters) {
    return InvalidArgument(
               "n is " + std::to_string(options.n) +
               " but this protocol carries one completion a request; "
               "send several requests or use REST")
        .At("n")
        .Because("unsupported_parameter");
  }
  if (best_of.value_or(options.n) < options.n) {
    return InvalidArgument("best_of is " + std::to_string(*best_of) +
                           " but must be n at least, which is " +
                           std::to_string(options.n))
        .At("best_of");
  }
  if (best_of.value_or(options.n) > options.n) {
    return InvalidArgument(
               "best_of is " + std::to_string(*best_of) + " and n is " +
               std::to_string(options.n) +
               ", but choosing among more completions than are sent "
               "is not supported; raise n and choose yourself")
        .At("best_of")
        .Because("unsupported_parameter");
  }
  return OkStatus();
}

Status ReadStop(const Json& body, GenerateOptions& options) {
  const Json* stop = FindField(body, "stop");
  if (stop == nullptr) return OkStatus();
  if (!stop->is_string() && !stop->is_array()) {
    return WrongType("stop", "a string or an array of strings", *stop);
  }
  const size_t count = stop->is_array() ? stop->size() : 1;
  if (count > kMaxStops) {
    return InvalidArgument("stop holds " + std::to_string(count) +
                           " strings but may hold at most " +
                           std::to_string(kMaxStops))
        .At("stop");
  }
  for (size_t i = 0; i < count; ++i) {
    const Json& value = stop->is_array() ? (*stop)[i] : *stop;
    const std::string path =
        stop->is_array() ? "stop[" + std::to_string(i) + "]" : "stop";
    ASSIGN_OR_RETURN(std::string text, AsString(value, path));
    if (text.empty() || text.size() > kMaxStopBytes) {
      return InvalidArgument(path + " has " + std::to_string(text.size()) +
                             " bytes but must have between 1 and " +
                             std::to_string(kMaxStopBytes))
          .At(path);
    }
    options.stop.push_back(std::move(text));
  }
  return OkStatus();
}

// The ids of a list; empty when it is absent.
StatusOr<std::vector<int32_t>> ReadTokenIds(const Json& body, const char* field,
                                            size_t most) {
  std::vector<int32_t> result;
  ASSIGN_OR_RETURN(const Json* ids, ReadArray(body, field));
  if (ids == nullptr) return result;
  if (ids->size() > most) {
    return InvalidArgument(std::string(field) + " holds " +
                           std::to_string(ids->size()) +
                           " ids but may hold at most " + std::to_string(most))
        .At(field);
  }
  for (size_t i = 0; i < ids->size(); ++i) {
    ASSIGN_OR_RETURN(const int64_t id,
                     AsInt((*ids)[i], field + ("[" + std::to_string(i) + "]"),
                           {0, INT32_MAX}));
    result.push_back(static_cast<int32_t>(id));
  }
  return result;
}

Status ReadAllowedTokenIds(const Json& body, GenerateOptions& options) {
  ASSIGN_OR_RETURN(
      options.allowed_token_ids,
      ReadTokenIds(body, "allowed_token_ids", kMaxAllowedTokenIds));
  if (FindField(body, "allowed_token_ids") == nullptr ||
      !options.allowed_token_ids.empty()) {
    return OkStatus();
  }
  return InvalidArgument(
             "allowed_token_ids is empty, so that no token could be drawn; "
             "name one id at least or leave it out")
      .At("allowed_token_ids");
}

Status ReadBadWords(const Json& body, GenerateOptions& options) {
  ASSIGN_OR_RETURN(const Json* words, ReadArray(body, "bad_words"));
  if (words == nullptr) return OkStatus();
  if (words->size() > kMaxBadWords) {
    return InvalidArgument("bad_words holds " + std::to_string(words->size()) +
                           " strings but may hold at most " +
                           std::to_string(kMaxBadWords))
        .At("bad_words");
  }
  for (size_t i = 0; i < words->size(); ++i) {
    const std::string path = "bad_words[" + std::to_string(i) + "]";
    ASSIGN_OR_RETURN(std::string word, AsString((*words)[i], path));
    if (word.size() > kMaxBadWordBytes ||
        word.find_first_not_of(" \t\r\n") == std::string::npos) {
      return InvalidArgument(path + " has " + std::to_string(word.size()) +
                             " bytes but must have between 1 and " +
                             std::to_string(kMaxBadWordBytes) +
                             ", not only white space")
          .At(path);
    }
    options.bad_words.push_back(std::move(word));
  }
  return OkStatus();
}

Status ReadLogitBias(const Json& body, GenerateOptions& options) {
  ASSIGN_OR_RETURN(const Json* bias, ReadObject(body, "logit_bias"));
  if (bias == nullptr) return OkStatus();
  if (bias->size() > kMaxLogitBias) {
    return InvalidArgument("logit_bias holds " + std::to_string(bias->size()) +
                           " tokens but may hold at most " +
                           std::to_string(kMaxLogitBias))
        .At("logit_bias");
  }
  for (const auto& [key, value] : bias->items()) {
    int32_t id = 0;
    const char* const end = key.data() + key.size();
    const auto parsed = std::from_chars(key.data(), end, id);
    if (parsed.ec != std::errc() || parsed.ptr != end || id < 0) {
      return InvalidArgument("logit_bias has the key " + Shown(Json(key)) +
                             " but keys must be token ids such as \"42\"")
          .At("logit_bias");
    }
    ASSIGN_OR_RETURN(const double number,
                     AsNumber(value, "logit_bias." + key, {-100, 100}));
    options.logit_bias.emplace_back(id, static_cast<float>(number));
  }
  return OkStatus();
}

Status ReadLogprobs(const Json& body, FieldDialect dialect,
                    GenerateOptions& options) {
  if (dialect != FieldDialect::kChat) {
    ASSIGN_OR_RETURN(const auto logprobs,
                     ReadInt(body, "logprobs", kTopLogprobs));
    if (logprobs) options.logprobs = static_cast<int>(*logprobs);
    return OkStatus();
  }
  ASSIGN_OR_RETURN(const auto logprobs, ReadBool(body, "logprobs"));
  ASSIGN_OR_RETURN(const auto top, ReadInt(body, "top_logprobs", kTopLogprobs));
  if (!logprobs.value_or(false)) {
    if (top.value_or(0) == 0) return OkStatus();
    return InvalidArgument("top_logprobs is " + std::to_string(*top) +
                           " but takes effect only with logprobs: true")
        .At("top_logprobs");
  }
  options.logprobs = static_cast<int>(top.value_or(0));
  return OkStatus();
}

// --- Plain numbers and switches ----------------------------------------------

struct NumberField {
  const char* name;
  NumberRange range;
  std::optional<double> GenerateOptions::*member;
};
constexpr NumberField kNumbers[] = {
    {"temperature", {0, 2}, &GenerateOptions::temperature},
    {"top_p", {0, 1, true}, &GenerateOptions::top_p},
    {"min_p", {0, 1}, &GenerateOptions::min_p},
    {"repetition_penalty", {0, 10, true}, &GenerateOptions::repetition_penalty},
    {"presence_penalty", {-2, 2}, &GenerateOptions::presence_penalty},
    {"frequency_penalty", {-2, 2}, &GenerateOptions::frequency_penalty},
    {"typical_p", {0, 1, true}, &GenerateOptions::typical_p},
    {"top_n_sigma", {-1, 100}, &GenerateOptions::top_n_sigma},
    {"xtc_probability", {0, 1}, &GenerateOptions::xtc_probability},
    {"xtc_threshold", {0, 1}, &GenerateOptions::xtc_threshold},
    {"dynatemp_range", {0, 2}, &GenerateOptions::dynatemp_range},
    {"dynatemp_exponent", {0, 10}, &GenerateOptions::dynatemp_exponent},
    {"mirostat_tau", {0, 100}, &GenerateOptions::mirostat_tau},
    {"mirostat_eta", {0, 1}, &GenerateOptions::mirostat_eta},
    {"dry_multiplier", {0, 100}, &GenerateOptions::dry_multiplier},
    {"dry_base", {0, 100}, &GenerateOptions::dry_base},
};

struct BoolField {
  const char* name;
  bool GenerateOptions::*member;
};
constexpr BoolField kSwitches[] = {
    {"include_stop_str_in_output",
     &GenerateOptions::include_stop_str_in_output},
    {"ignore_eos", &GenerateOptions::ignore_eos},
    {"skip_special_tokens", &GenerateOptions::skip_special_tokens},
    {"return_progress", &GenerateOptions::return_progress},
};

Status ReadLengths(const Json& body, GenerateOptions& options) {
  ASSIGN_OR_RETURN(const auto max_tokens, ReadInt(body, "max_tokens", kLength));
  ASSIGN_OR_RETURN(const auto max_completion_tokens,
                   ReadInt(body, "max_completion_tokens", kLength));
  // The newer name wins, as in vLLM.
  options.max_tokens =
      max_completion_tokens ? max_completion_tokens : max_tokens;
  ASSIGN_OR_RETURN(const auto predict, ReadInt(body, "n_predict", kPredict));
  if (predict == 0) {
    return InvalidArgument(
               "n_predict is 0 but a completion has one token at least; POST "
               "/completion computes a prompt alone")
        .At("n_predict");
  }
  if (predict && options.max_tokens.value_or(*predict) != *predict) {
    return TwoNames("n_predict", *predict, "max_tokens", *options.max_tokens);
  }
  if (predict == -1) {
    options.clip_to_context = true;
  } else if (predict) {
    options.max_tokens = predict;
  }
  ASSIGN_OR_RETURN(const auto min_tokens,
                   ReadInt(body, "min_tokens", kMinLength));
  options.min_tokens = min_tokens.value_or(0);
  if (options.max_tokens && options.min_tokens > *options.max_tokens) {
    return InvalidArgument("min_tokens is " +
                           std::to_string(options.min_tokens) +
                           " but must not exceed max_tokens, which is " +
                           std::to_string(*options.max_tokens))
        .At("min_tokens");
  }
  return OkStatus();
}

// Clients of Triton write numbers and switches as strings ("temperature":
// "0.1"); they are read as what they spell.
Json WithoutQuotes(const Json& body) {
  Json plain = body;
  for (auto& [key, value] : plain.items()) {
    const bool is_text = key == "stop" || key == "grammar" ||
                         key == "guided_regex" || key == "guided_grammar" ||
                         key == "regex" || key == "ebnf";
    if (is_text || !value.is_string()) continue;
    const auto& text = value.get_ref<const std::string&>();
    if (text.size() > 40) continue;
    const StatusOr<Json> spelled = ParseJson(text == "True"    ? "true"
                                             : text == "False" ? "false"
                                                               : text);
    if (spelled.ok() && spelled->is_primitive() && !spelled->is_string()) {
      value = *spelled;
    }
  }
  return plain;
}

StatusOr<GenerateOptions> Read(const Json& request, FieldDialect dialect) {
  RETURN_IF_ERROR(CheckNothingRefused(request, dialect));
  GenerateOptions options;
  ASSIGN_OR_RETURN(auto named, ReadLogitsProcessors(request));
  if (named) options.logits_processors = std::move(named->names);
  const Json& body = named ? *named->fields : request;
  for (const NumberField& field : kNumbers) {
    ASSIGN_OR_RETURN(const auto value,
                     ReadNumber(body, field.name, field.range));
    options.*field.member = value;
  }
  for (const BoolField& field : kSwitches) {
    ASSIGN_OR_RETURN(const auto value, ReadBool(body, field.name));
    if (value) options.*field.member = *value;
  }
  if (dialect != FieldDialect::kChat) {
    ASSIGN_OR_RETURN(const auto echo, ReadBool(body, "echo"));
    options.echo = echo.value_or(false);
  } else {
    ASSIGN_OR_RETURN(options.prediction, ReadPrediction(body));
  }
  RETURN_IF_ERROR(ReadSamplerFields(body, options));
  RETURN_IF_ERROR(ReadLengths(body, options));
  RETURN_IF_ERROR(ReadCompletions(body, dialect, options));
  ASSIGN_OR_RETURN(const auto top_k, ReadInt(body, "top_k", kTopK));
  options.top_k = top_k;
  ASSIGN_OR_RETURN(const auto seed, ReadInt(body, "seed"));
  // -1 asks for one of the server's choice, as it does elsewhere.
  if (seed && *seed != -1) options.seed = static_cast<uint64_t>(*seed);
  ASSIGN_OR_RETURN(const auto priority, ReadInt(body, "priority", kPriority));
  options.priority = static_cast<int32_t>(priority.value_or(0));
  RETURN_IF_ERROR(ReadStop(body, options));
  ASSIGN_OR_RETURN(options.stop_token_ids,
                   ReadTokenIds(body, "stop_token_ids", kMaxStopTokenIds));
  RETURN_IF_ERROR(ReadAllowedTokenIds(body, options));
  RETURN_IF_ERROR(ReadBadWords(body, options));
  ASSIGN_OR_RETURN(options.suppress_tokens,
                   ReadTokenIds(body, "suppress_tokens", kMaxSuppressTokens));
  ASSIGN_OR_RETURN(const auto ngram_size,
                   ReadInt(body, "no_repeat_ngram_size", kNgramSize));
  options.no_repeat_ngram_size = static_cast<int32_t>(ngram_size.value_or(0));
  RETURN_IF_ERROR(ReadLogitBias(body, options));
  RETURN_IF_ERROR(ReadLogprobs(body, dialect, options));
  RETURN_IF_ERROR(ReadLlamaFields(body, options));
  ASSIGN_OR_RETURN(options.constraint, ReadConstraint(body));
  if (options.constraint && !options.allowed_token_ids.empty()) {
    return InvalidArgument("allowed_token_ids and " + options.constraint.field +
                           " cannot be used together; leave one of them out")
        .At("allowed_token_ids");
  }
  return options;
}

}  // namespace

std::vector<FieldFacts> GenerateFields(FieldDialect dialect) {
  const bool chat = dialect == FieldDialect::kChat;
  std::vector<FieldFacts> fields;
  for (const NumberField& field : kNumbers) {
    fields.push_back({.name = field.name,
                      .type = "number",
                      .min = field.range.min,
                      .max = field.range.max,
                      .without_min = field.range.without_min});
  }
  for (const BoolField& field : kSwitches) {
    fields.push_back({.name = field.name, .type = "boolean"});
  }
  const auto integer = [&](std::string_view name, const IntRange& range) {
    FieldFacts facts = {.name = name, .type = "integer"};
    if (range.min != INT64_MIN) facts.min = static_cast<double>(range.min);
    if (range.max != INT64_MAX) facts.max = static_cast<double>(range.max);
    fields.push_back(facts);
  };
  integer("max_tokens", kLength);
  integer("max_completion_tokens", kLength);
  integer("n_predict", kPredict);
  integer("min_tokens", kMinLength);
  integer("n", kCompletions);
  integer("n_cmpl", kCompletions);
  integer("top_k", kTopK);
  integer("seed", {});
  integer("priority", kPriority);
  integer("no_repeat_ngram_size", kNgramSize);
  integer("mirostat", {0, 2});
  integer("min_keep", {0, INT32_MAX});
  integer("dry_allowed_length", {0, INT32_MAX});
  integer("dry_penalty_last_n", {-1, INT32_MAX});
  if (chat) {
    fields.push_back({.name = "logprobs", .type = "boolean"});
    integer("top_logprobs", kTopLogprobs);
    fields.push_back({.name = "prediction", .type = "object"});
  } else {
    integer("logprobs", kTopLogprobs);
    fields.push_back({.name = "echo", .type = "boolean"});
  }
  fields.push_back({.name = "stop", .type = "array", .items = "string"});
  for (const char* name :
       {"stop_token_ids", "allowed_token_ids", "suppress_tokens"}) {
    fields.push_back({.name = name, .type = "array", .items = "integer"});
  }
  for (const char* name : {"bad_words", "dry_sequence_breakers"}) {
    fields.push_back({.name = name, .type = "array", .items = "string"});
  }
  for (const char* name :
       {"logit_bias", "response_format", "structured_outputs", "guided_json",
        "json_schema"}) {
    fields.push_back({.name = name, .type = "object"});
  }
  for (const char* name :
       {"guided_regex", "guided_grammar", "grammar", "regex", "ebnf"}) {
    fields.push_back({.name = name, .type = "string"});
  }
  fields.push_back(
      {.name = "guided_choice", .type = "array", .items = "string"});
  fields.push_back({.name = "logits_processors", .type = "array"});
  const std::vector<FieldFacts> llama = LlamaFields();
  fields.insert(fields.end(), llama.begin(), llama.end());
  return fields;
}

StatusOr<GenerateOptions> ReadGenerateOptions(const Json& body,
                                              FieldDialect dialect) {
  if (!body.is_object()) {
    return InvalidArgument("the request must be a JSON object");
  }
  RETURN_IF_ERROR(CheckFieldCount(body.size()));
  return dialect == FieldDialect::kSamplingParameters
             ? Read(WithoutQuotes(body), dialect)
             : Read(body, dialect);
}

}  // namespace millrace::handlers
