// Transformers 5 writes rope_theta and rope_scaling as one object,
// rope_parameters, which has one object for each kind of layer where these
// differ. Llama 3's scaling of frequencies becomes one factor for each pair of
// a head, as in GGUF files.
#include "models/llm/hf_rope.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "models/llm/hf_json.h"
#include "models/llm/hf_names.h"

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostPairs = 4096;

SourceValue Made(std::string value) {
  return {"string", false, std::move(value)};
}
SourceValue Made(double value) { return {"number", false, value}; }

// A number that was read before; 0 when absent.
double NumberIn(const HfConfig& config, const char* key) {
  const auto it = config.values.find(key);
  if (it == config.values.end()) return 0;
  if (const auto* n = std::get_if<int64_t>(&it->second.value)) {
    return static_cast<double>(*n);
  }
  const auto* x = std::get_if<double>(&it->second.value);
  return x != nullptr ? *x : 0;
}

double HeadDim(const HfConfig& config) {
  const double own = NumberIn(config, "attention.key_length");
  return own != 0 ? own
                  : NumberIn(config, "embedding_length") /
                        NumberIn(config, "attention.head_count");
}

// Llama 3.1: long wavelengths are stretched by `factor`, short ones are left,
// those between go smoothly from one to the other.
// Source: Hugging Face's rope_type "llama3", after Meta's reference code.
StatusOr<std::vector<float>> Llama3Factors(const Json& scaling,
                                           const HfConfig& config) {
  const auto number = [&](const char* key) -> StatusOr<double> {
    const std::optional<double> value = NumberOf(scaling, key);
    if (!value || !(*value > 0) || !std::isfinite(*value)) {
      return InvalidArgument("rope_scaling." + std::string(key) +
                             " must be a number above 0");
    }
    return *value;
  };
  ASSIGN_OR_RETURN(const double factor, number("factor"));
  ASSIGN_OR_RETURN(const double low, number("low_freq_factor"));
  ASSIGN_OR_RETURN(const double high, number("high_freq_factor"));
  ASSIGN_OR_RETURN(const double context,
                   number("original_max_position_embeddings"));
  if (!(high > low)) {
    return InvalidArgument(
        "rope_scaling.high_freq_factor must be above low_freq_factor");
  }
  const double head_dim = HeadDim(config);
  double base = NumberIn(config, "rope.freq_base");
  if (base == 0) base = 10000;
  if (!(head_dim >= 2 && head_dim <= 4096 && base > 0)) {
    return InvalidArgument("head_dim or rope_theta are out of range");
  }
  std::vector<float> factors;
  for (int i = 0; i < static_cast<int>(head_dim) / 2; ++i) {
    const double wavelength =
        2 * std::numbers::pi * std::pow(base, 2 * i / head_dim);
    const double turns = context / wavelength;
    const double smooth = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    factors.push_back(static_cast<float>(1 / ((1 - smooth) / factor + smooth)));
  }
  return factors;
}

// How many values of a head are rotated, where not all are.
Status ReadPart(const Json& config, const Json& scaling, HfConfig& out) {
  std::optional<double> part = NumberOf(config, "partial_rotary_factor");
  if (!part) part = NumberOf(scaling, "partial_rotary_factor");
  if (!part) part = NumberOf(config, "rotary_pct");
  if (!part || *part == 1) return OkStatus();
  const double values = HeadDim(out) * *part;
  if (!RotatesParts(out.architecture)) {
    return Unimplemented("partial_rotary_factor is " + std::to_string(*part) +
                         ": rotating a part of a head is not supported in "
                         "the family '" +
                         out.architecture + "'");
  }
  if (!(values >= 2 && values <= 4096)) {
    return InvalidArgument("partial_rotary_factor is " + std::to_string(*part) +
                           ", more than 0 and up to 1 is allowed");
  }
  SourceValue count;
  count.type = "number";
  count.value = static_cast<int64_t>(values);
  out.values["rope.dimension_count"] = std::move(count);
  return OkStatus();
}

StatusOr<std::vector<float>> FactorsOf(const Json& scaling, const char* key) {
  const Json* list = Find(scaling, key);
  std::vector<float> factors;
  if (list != nullptr && list->is_array() && list->size() <= kMostPairs) {
    for (const Json& item : *list) {
      const double x = item.is_number() ? item.get<double>() : 0;
      if (!(x > 0) || !(x < 1e6)) {
        factors.clear();
        break;
      }
      factors.push_back(static_cast<float>(x));
    }
  }
  if (!factors.empty()) return factors;
  return InvalidArgument("rope_scaling." + std::string(key) +
                         " must be a list of numbers above 0");
}

// A file of ours says by what YaRN's usual magnitude is multiplied.
void ReadYarnMagnitude(const Json& scaling, HfConfig& out) {
  const double factor = NumberOf(scaling, "factor").value_or(1);
  const auto usual = [factor](double scale) {
    return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
  };
  std::optional<double> magnitude = NumberOf(scaling, "attention_factor");
  const double scale = NumberOf(scaling, "mscale").value_or(0);
  const double scale_all = NumberOf(scaling, "mscale_all_dim").value_or(0);
  if (!magnitude && scale != 0 && scale_all != 0) {
    magnitude = usual(scale) / usual(scale_all);
  }
  if (magnitude) {
    out.values["rope.scaling.attn_factor"] = Made(*magnitude / usual(1));
  }
}

Status ReadScaling(const Json& scaling, const std::string& type,
                   HfConfig& out) {
  if (type == "llama3") {
    ASSIGN_OR_RETURN(out.rope_factors["rope_freqs.weight"],
                     Llama3Factors(scaling, out));
    return OkStatus();
  }
  if (type == "longrope" || type == "su") {
    ASSIGN_OR_RETURN(out.rope_factors["rope_factors_short.weight"],
                     FactorsOf(scaling, "short_factor"));
    ASSIGN_OR_RETURN(out.rope_factors["rope_factors_long.weight"],
                     FactorsOf(scaling, "long_factor"));
    if (const Json* own = Find(scaling, "attention_factor")) {
      out.values["rope.scaling.attn_factor"] = HfValueOf(*own);
    }
  } else if (type == "yarn") {
    ReadYarnMagnitude(scaling, out);
  } else if (type != "linear" && type != "dynamic") {
    return Unimplemented("rope_scaling is of type '" + type +
                         "'; default, linear, dynamic, yarn, longrope and "
                         "llama3 are supported");
  }
  out.values["rope.scaling.type"] = Made(type == "su" ? "longrope" : type);
  const std::pair<const char*, const char*> keys[] = {
      {"rope.scaling.factor", "factor"},
      {"rope.scaling.original_context_length",
       "original_max_position_embeddings"},
      {"rope.scaling.yarn_beta_fast", "beta_fast"},
      {"rope.scaling.yarn_beta_slow", "beta_slow"},
      {"rope.scaling.truncate", "truncate"}};
  for (const auto& [ours, theirs] : keys) {
    if (const Json* value = Find(scaling, theirs)) {
      out.values[ours] = HfValueOf(*value);
    }
  }
  return OkStatus();
}

}  // namespace

Status ReadHfRope(const Json& config, HfConfig& out) {
  const Json* scaling = Find(config, "rope_parameters");
  if (scaling == nullptr) scaling = Find(config, "rope_scaling");
  const Json none = Json::object();
  if (scaling == nullptr) scaling = &none;
  if (!scaling->is_object()) {
    return InvalidArgument("rope_scaling is no object");
  }
  if (const Json* local = Find(*scaling, "sliding_attention")) {
    const std::string type = TextOf(*local, "rope_type");
    if (!type.empty() && type != "default") {
      return Unimplemented("the rope of sliding layers is of type '" + type +
                           "'; default is supported");
    }
    if (const Json* theta = Find(*local, "rope_theta")) {
      out.values["rope.freq_base_swa"] = HfValueOf(*theta);
    }
  }
  if (const Json* full = Find(*scaling, "full_attention")) scaling = full;
  if (const Json* theta = Find(*scaling, "rope_theta")) {
    out.values["rope.freq_base"] = HfValueOf(*theta);
  }
  RETURN_IF_ERROR(ReadPart(config, *scaling, out));
  std::string type = TextOf(*scaling, "rope_type");
  if (type.empty()) type = TextOf(*scaling, "type");
  if (type.empty() || type == "default") return OkStatus();
  return ReadScaling(*scaling, type, out);
}

}  // namespace millrace::models
