// Fields have the names that Hugging Face gives them. do_sample is skipped, as
// in vLLM: a temperature of 0 says the same.
#include "models/llm/generation_config.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "config/base/json.h"
#include "config/base/utf8.h"

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kAboveZero = 1e-9;
constexpr std::string_view kOverride = "override_generation_config";

struct RealField {
  const char* name;
  double least;
  double most;
  const char* bounds;
  std::optional<double> GenerationDefaults::*value;
};
constexpr RealField kRealFields[] = {
    {"temperature", 0, 2, "0 to 2", &GenerationDefaults::temperature},
    {"top_p", kAboveZero, 1, "above 0, at most 1", &GenerationDefaults::top_p},
    {"min_p", 0, 1, "0 to 1", &GenerationDefaults::min_p},
    {"repetition_penalty", kAboveZero, 10, "above 0, at most 10",
     &GenerationDefaults::repetition_penalty},
};
constexpr const char* kFieldNames =
    "temperature, top_k, top_p, min_p and repetition_penalty";

// Advice of the makers of models whose files hold no sampling, by the name
// that stands in the file (general.name).
struct MakersAdvice {
  std::string_view name;
  double temperature;
  double top_p;
};
constexpr MakersAdvice kMakersAdvice[] = {
    // SmolLM2-135M-Instruct, its model card.
    {"Smollm2 135M 8k Lc100K Mix1 Ep2", 0.2, 0.9},
    {"Smollm2 135M Instruct", 0.2, 0.9},
    {"SmolLM2-135M-Instruct", 0.2, 0.9},
};

Status OutOfRange(std::string_view where, std::string_view field,
                  const std::string& value, std::string_view bounds) {
  std::string text(where);
  text.append(": ").append(field).append(" is ").append(Shortened(value, 40));
  text.append(", which is out of range; allowed is ").append(bounds);
  if (where != kOverride) {
    text.append(" (--generation-config none ignores the model's own)");
  }
  return InvalidArgument(text).At(field);
}

StatusOr<GenerationDefaults> FieldsOf(const Json& config,
                                      std::string_view where) {
  GenerationDefaults out;
  for (const RealField& field : kRealFields) {
    const auto it = config.find(field.name);
    if (it == config.end() || it->is_null()) continue;
    const double value = it->is_number() ? it->get<double>() : -1;
    if (!(value >= field.least && value <= field.most)) {
      return OutOfRange(where, field.name, DumpJson(*it), field.bounds);
    }
    out.*field.value = value;
  }
  const auto top_k = config.find("top_k");
  if (top_k != config.end() && !top_k->is_null()) {
    if (!top_k->is_number_integer() || top_k->get<int64_t>() < -1 ||
        top_k->get<int64_t>() > INT32_MAX) {
      return OutOfRange(where, "top_k", DumpJson(*top_k),
                        "a whole number of at least -1");
    }
    out.top_k = top_k->get<int64_t>();
  }
  return out;
}

StatusOr<Json> ObjectOf(std::string_view text, std::string_view where) {
  StatusOr<Json> json = ParseJson(text);
  if (!json.ok()) return json.status().Prefixed(where);
  if (!json->is_object()) {
    return InvalidArgument(std::string(where) + " is no JSON object");
  }
  return json;
}

bool IsEmpty(const GenerationDefaults& defaults) {
  return NamedValues(defaults).empty();
}

// Of a folder, or of a file in another place, that the setting names.
StatusOr<GenerationDefaults> ReadFile(const std::string& setting) {
  std::filesystem::path path(setting);
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    path /= "generation_config.json";
  }
  std::ifstream in(path, std::ios::binary);
  if (!in || std::filesystem::is_directory(path, ignored)) {
    return NotFound("generation_config is '" + setting +
                    "', which is neither auto, none, vllm nor a folder with "
                    "generation_config.json")
        .At("generation_config");
  }
  const std::string text(std::istreambuf_iterator<char>(in), {});
  return ParseGenerationConfig(text, "'" + path.string() + "'");
}

StatusOr<ModelGeneration> ReadOwn(const ModelSource& source,
                                  const std::string& setting) {
  if (setting == "none" || setting == "vllm") return ModelGeneration{{}, ""};
  if (setting != "auto") {
    ASSIGN_OR_RETURN(const GenerationDefaults defaults, ReadFile(setting));
    return ModelGeneration{defaults, setting};
  }
  ModelGeneration out;
  ASSIGN_OR_RETURN(out.defaults, source.ReadGenerationDefaults());
  out.origin = "model";
  if (!IsEmpty(out.defaults)) return out;
  out.origin.clear();
  const std::string name = source.name();
  for (const MakersAdvice& advice : kMakersAdvice) {
    if (advice.name != name) continue;
    out.defaults.temperature = advice.temperature;
    out.defaults.top_p = advice.top_p;
    out.origin = "makers' advice";
  }
  return out;
}

StatusOr<GenerationDefaults> ParseOverride(const std::string& text) {
  const StatusOr<Json> parsed = ObjectOf(text, kOverride);
  if (!parsed.ok()) {
    return InvalidArgument(std::string(kOverride) + " is '" +
                           Shortened(text, 80) +
                           "'; expected a JSON object such as "
                           "{\"temperature\": 0.5}")
        .At(kOverride);
  }
  const Json& object = *parsed;
  for (const auto& [key, value] : object.items()) {
    bool known = key == "top_k";
    for (const RealField& field : kRealFields) known |= key == field.name;
    if (known && !value.is_null()) continue;
    return InvalidArgument(std::string(kOverride) + " has the field '" +
                           Shortened(key, 40) + "'" +
                           (known ? " without a value" : "") + "; it takes " +
                           kFieldNames)
        .At(kOverride);
  }
  return FieldsOf(object, kOverride);
}

}  // namespace

StatusOr<GenerationDefaults> ParseGenerationConfig(std::string_view json,
                                                   std::string_view where) {
  ASSIGN_OR_RETURN(const Json config, ObjectOf(json, where));
  return FieldsOf(config, where);
}

Status CheckGenerationDefaults(const GenerationDefaults& defaults,
                               std::string_view where) {
  Json config = Json::object();
  for (const auto& [name, value] : NamedValues(defaults)) {
    if (name != "top_k") config[std::string(name)] = value;
  }
  if (defaults.top_k) config["top_k"] = *defaults.top_k;
  return FieldsOf(config, where).status();
}

StatusOr<ModelGeneration> ReadModelGeneration(
    const ModelSource& source, const config::LlmSettings& settings) {
  ASSIGN_OR_RETURN(ModelGeneration out,
                   ReadOwn(source, settings.generation_config));
  if (!settings.override_generation_config.empty()) {
    ASSIGN_OR_RETURN(const GenerationDefaults own,
                     ParseOverride(settings.override_generation_config));
    for (const RealField& field : kRealFields) {
      if (own.*field.value) out.defaults.*field.value = own.*field.value;
    }
    if (own.top_k) out.defaults.top_k = own.top_k;
    out.origin += out.origin.empty() ? "" : ", ";
    out.origin += kOverride;
  }
  if (out.origin.empty()) out.origin = "none";
  return out;
}

}  // namespace millrace::models
