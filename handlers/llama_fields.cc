#include "handlers/llama_fields.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "handlers/json_fields.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;

constexpr NumberRange kPenalty = {0, 10, true};
constexpr IntRange kProbs = {0, kMostTopLogprobs};
constexpr IntRange kLastN = {-1, INT32_MAX};

Status ReadNames(const Json& body, GenerateOptions& options) {
  ASSIGN_OR_RETURN(const auto penalty,
                   ReadNumber(body, "repeat_penalty", kPenalty));
  if (penalty && options.repetition_penalty.value_or(*penalty) != *penalty) {
    return TwoNames("repeat_penalty", *penalty, "repetition_penalty",
                    *options.repetition_penalty);
  }
  if (penalty) options.repetition_penalty = penalty;

  ASSIGN_OR_RETURN(const auto probs, ReadInt(body, "n_probs", kProbs));
  if (probs.value_or(0) == 0) return OkStatus();
  const int wanted = static_cast<int>(*probs);
  // `logprobs: true` alone asks for no alternatives.
  if (options.logprobs.value_or(0) != 0 && *options.logprobs != wanted) {
    return TwoNames("n_probs", wanted, "logprobs", *options.logprobs);
  }
  options.logprobs = wanted;
  return OkStatus();
}

void TurnPenaltiesOff(GenerateOptions& options) {
  options.repetition_penalty = 1;
  options.presence_penalty = 0;
  options.frequency_penalty = 0;
}

Status ReadLastN(const Json& body, GenerateOptions& options) {
  ASSIGN_OR_RETURN(const auto last_n, ReadInt(body, "repeat_last_n", kLastN));
  if (last_n == 0) TurnPenaltiesOff(options);
  if (last_n) options.repeat_last_n = static_cast<int32_t>(*last_n);
  return OkStatus();
}

bool Penalises(const GenerateOptions& options) {
  return options.repetition_penalty.value_or(1) != 1 ||
         options.presence_penalty.value_or(0) != 0 ||
         options.frequency_penalty.value_or(0) != 0;
}
bool PenalisesRepetition(const GenerateOptions& options) {
  return options.dry_multiplier.value_or(0) != 0;
}

using Stage = models::DrawStage;

struct SamplerName {
  std::string_view name;
  char letter;
  std::string_view other = {};
  void (*turn_off)(GenerateOptions&);
  std::optional<Stage> stage = {};  // none: it changes logits, see below
};
constexpr size_t kPenalties = 0;
constexpr size_t kDry = 1;
// In the order in which they are applied where a request names none.
constexpr SamplerName kSamplers[] = {
    {"penalties", 'e', "", TurnPenaltiesOff},
    {"dry", 'd', "", [](GenerateOptions& o) { o.dry_multiplier = 0; }},
    {"top_n_sigma", 's', "", [](GenerateOptions& o) { o.top_n_sigma = -1; },
     Stage::kTopNSigma},
    {"top_k", 'k', "", [](GenerateOptions& o) { o.top_k = 0; }, Stage::kTopK},
    {"typ_p", 'y', "typical_p", [](GenerateOptions& o) { o.typical_p = 1; },
     Stage::kTypical},
    {"top_p", 'p', "", [](GenerateOptions& o) { o.top_p = 1; }, Stage::kTopP},
    {"min_p", 'm', "", [](GenerateOptions& o) { o.min_p = 0; }, Stage::kMinP},
    {"xtc", 'x', "", [](GenerateOptions& o) { o.xtc_probability = 0; },
     Stage::kXtc},
    {"temperature", 't', "temp",
     [](GenerateOptions& o) {
       o.temperature = 1;
       o.dynatemp_range = 0;
     },
     Stage::kTemperature},
};

std::string OrderOfSamplers() {
  std::string list;
  for (const SamplerName& sampler : kSamplers) {
    list += (list.empty() ? "" : ", ") + std::string(sampler.name);
  }
  return list;
}

// Which samplers a request names: a list of names, or a string of letters.
StatusOr<std::vector<size_t>> NamedSamplers(const Json& value) {
  std::vector<size_t> found;
  const auto find = [&](const Json& entry, auto is) -> Status {
    const auto at = std::ranges::find_if(kSamplers, is);
    if (at == std::end(kSamplers)) {
      return InvalidArgument("samplers names " + Shown(entry) +
                             ", which is none of " + OrderOfSamplers())
          .At("samplers")
          .Because("unsupported_parameter");
    }
    const auto sampler = static_cast<size_t>(at - std::begin(kSamplers));
    if (std::ranges::find(found, sampler) != found.end()) {
      return InvalidArgument("samplers names " + std::string(at->name) +
                             " twice, but each acts once")
          .At("samplers")
          .Because("unsupported_parameter");
    }
    found.push_back(sampler);
    return OkStatus();
  };
  if (value.is_string()) {
    for (const char letter : value.get_ref<const std::string&>()) {
      RETURN_IF_ERROR(
          find(value, [&](const auto& each) { return each.letter == letter; }));
    }
    return found;
  }
  if (!value.is_array()) {
    return WrongType("samplers", "an array of names or a string of letters",
                     value);
  }
  for (const Json& entry : value) {
    if (!entry.is_string()) {
      return WrongType("samplers", "an array of names", entry);
    }
    const auto& name = entry.get_ref<const std::string&>();
    RETURN_IF_ERROR(find(entry, [&](const auto& each) {
      return each.name == name || (!each.other.empty() && each.other == name);
    }));
  }
  return found;
}

Status ReadSamplers(const Json& body, GenerateOptions& options) {
  const Json* value = FindField(body, "samplers");
  if (value == nullptr) return OkStatus();
  ASSIGN_OR_RETURN(const std::vector<size_t> named, NamedSamplers(*value));
  const auto is_named = [&](size_t sampler) {
    return std::ranges::find(named, sampler) != named.end();
  };
  if (options.mirostat != 0) return OkStatus();  // which takes their place
  for (size_t i = 0; i < std::size(kSamplers); ++i) {
    if (!is_named(i)) kSamplers[i].turn_off(options);
  }
  for (const size_t each : named) {
    if (const auto stage = kSamplers[each].stage) {
      options.sampler_order.push_back(*stage);
      continue;
    }
    // It changes the logits of all tokens, before any is cut.
    const bool acts =
        each == kPenalties ? Penalises(options) : PenalisesRepetition(options);
    if (acts && !options.sampler_order.empty()) {
      return InvalidArgument(
                 "samplers is " + Shown(*value) +
                 " but penalties and dry are applied before the others")
          .At("samplers")
          .Because("unsupported_parameter");
    }
    // What the model's makers recommend would be applied before, too.
    if (!options.sampler_order.empty()) kSamplers[each].turn_off(options);
    if (each == kPenalties && acts && is_named(kDry)) {
      options.dry_first =
          std::ranges::find(named, kDry) < std::ranges::find(named, kPenalties);
    }
  }
  return OkStatus();
}

}  // namespace

Status TwoNames(const char* name, const Json& value, const char* other,
                const Json& other_value) {
  return InvalidArgument(std::string(name) + " is " + Shown(value) + " and " +
                         other + " is " + Shown(other_value) +
                         ", but they are one field; leave one of them out")
      .At(name);
}

Status ReadLlamaFields(const Json& body, GenerateOptions& options) {
  RETURN_IF_ERROR(ReadNames(body, options));
  RETURN_IF_ERROR(ReadLastN(body, options));
  return ReadSamplers(body, options);
}

std::vector<FieldFacts> LlamaFields() {
  std::vector<FieldFacts> fields = {{.name = "repeat_penalty",
                                     .type = "number",
                                     .min = kPenalty.min,
                                     .max = kPenalty.max,
                                     .without_min = kPenalty.without_min}};
  const auto integer = [&](std::string_view name, const IntRange& range) {
    FieldFacts facts = {.name = name, .type = "integer"};
    facts.min = static_cast<double>(range.min);
    facts.max = static_cast<double>(range.max);
    fields.push_back(facts);
  };
  integer("n_probs", kProbs);
  integer("repeat_last_n", kLastN);
  fields.push_back({.name = "samplers", .type = "array", .items = "string"});
  return fields;
}

}  // namespace millrace::handlers
