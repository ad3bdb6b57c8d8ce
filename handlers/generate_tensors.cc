#include "handlers/generate_tensors.h"

#include <charconv>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "handlers/json_fields.h"
#include "handlers/request_fields.h"
#include "models/tensor/strings.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;
using models::DType;
using models::TensorSpec;

constexpr const char* kPrompt = "text_input";
constexpr const char* kStream = "stream";
constexpr const char* kSampling = "sampling_parameters";
constexpr const char* kExclude = "exclude_input_in_output";

constexpr std::string_view kIntegers[] = {
    "max_tokens",
    "max_completion_tokens",
    "min_tokens",
    "top_k",
    "seed",
    "logprobs",
    "prompt_logprobs",
    "n",
    "best_of",
    "priority",
    "mirostat",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "repeat_last_n",
    "min_keep",
};
constexpr std::string_view kReals[] = {
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "typical_p",
    "top_n_sigma",
    "xtc_probability",
    "xtc_threshold",
    "dynatemp_range",
    "dynatemp_exponent",
    "mirostat_tau",
    "mirostat_eta",
    "dry_multiplier",
    "dry_base",
};
constexpr std::string_view kBooleans[] = {
    "include_stop_str_in_output",
    "ignore_eos",
    "skip_special_tokens",
    "echo",
    "use_beam_search",
};

template <size_t N>
bool IsOneOf(const std::string_view (&names)[N], std::string_view name) {
  for (const std::string_view known : names) {
    if (known == name) return true;
  }
  return false;
}

template <typename Number>
std::optional<Number> WholeNumber(const std::string& text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// "0.5" → 0.5 for a field that is a number; anything else stays as it is, and
// the fields' reader says what is wrong with it.
void ReadStringAsValue(std::string_view name, Json& value) {
  if (!value.is_string()) return;
  const auto text = value.get<std::string>();  // value is overwritten below
  if (IsOneOf(kIntegers, name)) {
    if (auto number = WholeNumber<int64_t>(text)) {
      value = *number;
    } else if (auto big = WholeNumber<uint64_t>(text)) {
      value = *big;
    }
  } else if (IsOneOf(kReals, name)) {
    if (auto number = WholeNumber<double>(text)) value = *number;
  } else if (IsOneOf(kBooleans, name)) {
    if (text == "true" || text == "True" || text == "1") value = true;
    if (text == "false" || text == "False" || text == "0") value = false;
  }
}

TensorSpec OneOf(const char* name, DType dtype) {
  return {.name = name,
          .dtype = dtype,
          .dims = {1},
          .rank_known = true,
          .text = std::string(DTypeName(dtype)) + " [1]"};
}

Status Wrong(const std::string& name, const std::string& why) {
  return InvalidArgument("input '" + name + "' " + why).At(name);
}

// A BYTES or BOOL tensor of one element, of any rank above 0.
Status CheckTensor(const NamedTensor& input, std::set<std::string>* seen) {
  const TensorSpec* spec = nullptr;
  std::string names;
  for (const TensorSpec& known : GenerateInputs()) {
    if (input.name == known.name) spec = &known;
    names += (names.empty() ? "" : ", ") + known.name;
  }
  if (spec == nullptr) {
    return Wrong(input.name, "is not one of this model's inputs: " + names);
  }
  if (!seen->insert(input.name).second) {
    return Wrong(input.name, "is given twice; give it once");
  }
  const models::Shape& shape = input.tensor.shape();
  if (input.tensor.dtype() != spec->dtype) {
    return Wrong(input.name, "has datatype '" +
                                 std::string(DTypeName(input.tensor.dtype())) +
                                 "' but is " +
                                 std::string(DTypeName(spec->dtype)));
  }
  if (shape.rank() > 0 && shape.num_elements() == 1) return OkStatus();
  return Wrong(input.name, "has shape " + shape.ToString() +
                               " but takes one element; send shape [1]");
}

std::string TextOf(const NamedTensor& input) {
  return std::string(models::StringsIn(input.tensor).front());
}

bool SwitchOf(const NamedTensor& input) {
  return input.tensor.data<uint8_t>()[0] != 0;
}

}  // namespace

const std::vector<TensorSpec>& GenerateInputs() {
  static const std::vector<TensorSpec> kInputs = {
      OneOf(kPrompt, models::kString), OneOf(kStream, DType::kBool),
      OneOf(kSampling, models::kString), OneOf(kExclude, DType::kBool)};
  return kInputs;
}

const std::vector<TensorSpec>& GenerateOutputs() {
  static const std::vector<TensorSpec> kOutputs = {
      OneOf(kTextOutput, models::kString)};
  return kOutputs;
}

bool IsOptionalInput(std::string_view name) { return name != kPrompt; }

Status CheckPromptText(const std::string& text) {
  const size_t valid = ValidUtf8Prefix(text);
  if (valid == text.size()) return OkStatus();
  return InvalidArgument("text_input is not UTF-8 from byte " +
                         std::to_string(valid) + " on")
      .At(kPrompt);
}

Status AddSamplingJson(const std::string& text, Json* fields) {
  if (text.empty()) return OkStatus();
  StatusOr<Json> parsed = ParseJson(text);
  if (!parsed.ok()) return parsed.status().Prefixed(kSampling).At(kSampling);
  if (!parsed->is_object()) {
    return InvalidArgument(
               "sampling_parameters holds JSON that is no object; "
               "send for example {\"max_tokens\": 64}")
        .At(kSampling);
  }
  RETURN_IF_ERROR(CheckFieldCount(parsed->size()));
  for (auto& [name, value] : parsed->items()) {
    (*fields)[name] = std::move(value);
  }
  return OkStatus();
}

void ReadStringsAsValues(Json* fields) {
  for (auto& [name, value] : fields->items()) ReadStringAsValue(name, value);
}

Status TakeTensorFields(Json* fields) {
  if (const auto at = fields->find(kSampling); at != fields->end()) {
    const Json sampling = *at;
    fields->erase(at);
    if (!sampling.is_null() && !sampling.is_string() && !sampling.is_object()) {
      return WrongType(kSampling, "JSON of sampling fields as a string",
                       sampling);
    }
    if (sampling.is_string()) {
      RETURN_IF_ERROR(AddSamplingJson(sampling.get<std::string>(), fields));
    } else if (sampling.is_object()) {
      RETURN_IF_ERROR(CheckFieldCount(sampling.size()));
      for (const auto& [name, value] : sampling.items()) {
        (*fields)[name] = value;
      }
    }
    ReadStringsAsValues(fields);
  }
  ASSIGN_OR_RETURN(const auto exclude, ReadBool(*fields, kExclude));
  if (exclude.has_value() && !*exclude) (*fields)["echo"] = true;
  fields->erase(kExclude);
  return OkStatus();
}

StatusOr<GenerateTensors> ReadGenerateTensors(
    const std::vector<NamedTensor>& inputs, const Json& parameters) {
  GenerateTensors read;
  Json fields = parameters;
  std::set<std::string> seen;
  bool echo = false;
  for (const NamedTensor& input : inputs) {
    RETURN_IF_ERROR(CheckTensor(input, &seen));
    if (input.name == kPrompt) {
      read.prompt.text = TextOf(input);
    } else if (input.name == kStream) {
      read.stream = SwitchOf(input);
    } else if (input.name == kExclude) {
      echo = !SwitchOf(input);
    } else {
      RETURN_IF_ERROR(AddSamplingJson(TextOf(input), &fields));
    }
  }
  if (seen.count(kPrompt) == 0) {
    return InvalidArgument(
               "input 'text_input' is missing; send the prompt as a BYTES "
               "tensor of shape [1]")
        .At(kPrompt);
  }
  RETURN_IF_ERROR(CheckPromptText(read.prompt.text));
  ReadStringsAsValues(&fields);
  if (echo) fields["echo"] = true;
  ASSIGN_OR_RETURN(
      read.options,
      ReadGenerateOptions(fields, FieldDialect::kSamplingParameters));
  return read;
}

StatusOr<GenerateTensors> ReadGenerateTensors(
    const std::vector<NamedTensor>& inputs) {
  return ReadGenerateTensors(inputs, Json::object());
}

}  // namespace millrace::handlers
