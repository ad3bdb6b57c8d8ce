// Transformers 5 writes rope_theta and rope_scaling as one object,
// rope_parameters, which has one object for each kind of layer where these
// differ. A sliding window that is given is not always in use. Llama 3's
// scaling of frequencies becomes one factor for each pair of a head, as in GGUF
// files.
#include "models/llm/hf_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <utility>

#include "config/base/json.h"

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;

struct Architecture {
  std::string_view class_name;
  std::string_view model_type;
  std::string_view name;
  std::string_view activation = "silu";
};
constexpr Architecture kArchitectures[] = {
    {"LlamaForCausalLM", "llama", "llama"},
    {"MistralForCausalLM", "mistral", "llama"},
    {"Qwen2ForCausalLM", "qwen2", "qwen2"},
    {"Qwen3ForCausalLM", "qwen3", "qwen3"},
    {"Gemma2ForCausalLM", "gemma2", "gemma2", "gelu_pytorch_tanh"},
    {"Gemma3ForCausalLM", "gemma3_text", "gemma3", "gelu_pytorch_tanh"},
};

struct Names {
  std::string_view ours;
  std::string_view theirs;
};
constexpr Names kKeys[] = {
    {"block_count", "num_hidden_layers"},
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.value_length", "head_dim"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.query_pre_attn_scalar", "query_pre_attn_scalar"},
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"},
    {"rope.freq_base", "rope_theta"},
    {"rope.freq_base_swa", "rope_local_base_freq"},
    {"expert_count", "num_local_experts"},
    {"expert_count", "num_experts"},
};
constexpr Names kTensors[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
};
constexpr Names kLayerTensors[] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.bias", "self_attn.k_proj.bias"},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
};
// These come before those above in the families that have norms on both sides
// of a branch.
constexpr Names kPostNormTensors[] = {
    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight"},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight"},
};
constexpr std::string_view kOurLayer = "blk.";
constexpr std::string_view kTheirLayer = "model.layers.";
constexpr std::string_view kSliding = "sliding_attention";
constexpr double kMostLayers = 1024;

// Null when absent or JSON's null.
const Json* Find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

std::string TextOf(const Json& object, const char* key) {
  const Json* value = Find(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>()
                                                : "";
}

std::optional<double> NumberOf(const Json& object, const char* key) {
  const Json* value = Find(object, key);
  if (value == nullptr || !value->is_number()) return {};
  return value->get<double>();
}

SourceValue ValueOf(const Json& value) {
  SourceValue out;
  out.type = value.type_name();
  out.is_array = value.is_array();
  if (value.is_boolean()) {
    out.value = value.get<bool>();
  } else if (value.is_number_integer()) {
    out.value = value.get<int64_t>();
  } else if (value.is_number()) {
    out.value = value.get<double>();
  } else if (value.is_string()) {
    out.value = value.get<std::string>();
  }
  return out;
}

SourceValue Made(std::string value) {
  return {"string", false, std::move(value)};
}

bool HasPostNorms(std::string_view architecture) {
  return architecture == "gemma2" || architecture == "gemma3";
}

std::string ArchitectureOf(const Json& config) {
  std::string class_name;
  if (const Json* list = Find(config, "architectures");
      list != nullptr && list->is_array() && !list->empty() &&
      list->front().is_string()) {
    class_name = list->front().get<std::string>();
  }
  const std::string model_type = TextOf(config, "model_type");
  for (const Architecture& known : kArchitectures) {
    if (class_name.empty() ? model_type == known.model_type
                           : class_name == known.class_name) {
      return std::string(known.name);
    }
  }
  return class_name.empty() ? model_type : class_name;
}

std::string_view ActivationOf(std::string_view architecture) {
  for (const Architecture& known : kArchitectures) {
    if (known.name == architecture) return known.activation;
  }
  return "silu";
}

Status RefuseWhatIsNotServed(const Json& config,
                             std::string_view architecture) {
  const std::string wanted(ActivationOf(architecture));
  if (const Json* quantized = Find(config, "quantization_config")) {
    const std::string method = TextOf(*quantized, "quant_method");
    return Unimplemented("quantization_config: weights quantised by '" +
                         (method.empty() ? "?" : method) +
                         "' are not supported; take the folder in F32, F16 or "
                         "BF16, or a GGUF");
  }
  for (const char* key : {"hidden_act", "hidden_activation"}) {
    const std::string act = TextOf(config, key);
    if (!act.empty() && act != wanted &&
        !(act == "swish" && wanted == "silu")) {
      return Unimplemented(std::string(key) + " is '" + act + "'; " + wanted +
                           " is supported");
    }
  }
  return OkStatus();
}

// Fills in the window that is in use, and which layers slide where some do not;
// layers that the file does not name are as the family has them.
void ReadSlidingLayers(const Json& config, HfConfig& out) {
  const std::optional<double> window = NumberOf(config, "sliding_window");
  const std::string type = TextOf(config, "model_type");
  if (!window || type == "llama") return;
  const Json* use = Find(config, "use_sliding_window");
  const bool needs_use = type == "qwen2" || type == "qwen3";
  if (use != nullptr ? *use == false : needs_use) return;
  // Layers from the first windowed one on, or a list of them all.
  const auto layers = NumberOf(config, "num_hidden_layers");
  const auto first = NumberOf(config, "max_window_layers");
  std::vector<int64_t> slides;
  if (const Json* types = Find(config, "layer_types");
      types != nullptr && types->is_array()) {
    for (const Json& kind : *types) slides.push_back(kind == kSliding ? 1 : 0);
  } else if (first && layers && *layers >= 1 && *layers <= kMostLayers) {
    for (int64_t i = 0; i < static_cast<int64_t>(*layers); ++i) {
      slides.push_back(static_cast<double>(i) >= *first ? 1 : 0);
    }
  }
  const auto sliding = std::count(slides.begin(), slides.end(), 1);
  if (!slides.empty() && sliding == 0) return;
  out.values["attention.sliding_window"] =
      ValueOf(*Find(config, "sliding_window"));
  if (slides.empty()) return;
  SourceValue flags;
  flags.type = "array of boolean";
  flags.is_array = true;
  flags.value = std::move(slides);
  out.values["attention.sliding_window_pattern"] = std::move(flags);
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
  const auto value = [&](const char* key) -> double {
    const auto it = config.values.find(key);
    if (it == config.values.end()) return 0;
    if (const auto* n = std::get_if<int64_t>(&it->second.value)) {
      return static_cast<double>(*n);
    }
    const auto* x = std::get_if<double>(&it->second.value);
    return x != nullptr ? *x : 0;
  };
  double head_dim = value("attention.key_length");
  if (head_dim == 0) {
    head_dim = value("embedding_length") / value("attention.head_count");
  }
  double base = value("rope.freq_base");
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

Status ReadRope(const Json& config, HfConfig& out) {
  const Json* scaling = Find(config, "rope_parameters");
  if (scaling == nullptr) scaling = Find(config, "rope_scaling");
  if (scaling == nullptr) return OkStatus();
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
      out.values["rope.freq_base_swa"] = ValueOf(*theta);
    }
  }
  if (const Json* full = Find(*scaling, "full_attention")) scaling = full;
  if (const Json* theta = Find(*scaling, "rope_theta")) {
    out.values["rope.freq_base"] = ValueOf(*theta);
  }
  std::string type = TextOf(*scaling, "rope_type");
  if (type.empty()) type = TextOf(*scaling, "type");
  if (type.empty() || type == "default") return OkStatus();
  if (type == "llama3") {
    ASSIGN_OR_RETURN(out.rope_factors, Llama3Factors(*scaling, out));
    return OkStatus();
  }
  if (type != "linear") {
    return Unimplemented("rope_scaling is of type '" + type +
                         "'; default, linear and llama3 are supported");
  }
  out.values["rope.scaling.type"] = Made(type);
  if (const Json* factor = Find(*scaling, "factor")) {
    out.values["rope.scaling.factor"] = ValueOf(*factor);
  }
  return OkStatus();
}

// "model.layers.12.self_attn…" → ("12", "self_attn…"), or nothing.
std::optional<std::pair<std::string_view, std::string_view>> CutLayer(
    std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return {};
  name.remove_prefix(prefix.size());
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos || dot == 0) return {};
  const std::string_view layer = name.substr(0, dot);
  int32_t number = 0;
  const auto parsed =
      std::from_chars(layer.data(), layer.data() + layer.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != layer.data() + layer.size() ||
      std::to_string(number) != layer) {
    return {};
  }
  return std::pair(layer, name.substr(dot + 1));
}

std::vector<Names> LayerNames(std::string_view architecture) {
  std::vector<Names> names;
  if (HasPostNorms(architecture)) {
    names.assign(std::begin(kPostNormTensors), std::end(kPostNormTensors));
  }
  names.insert(names.end(), std::begin(kLayerTensors), std::end(kLayerTensors));
  return names;
}

}  // namespace

StatusOr<HfConfig> ReadHfConfig(const Json& config) {
  if (!config.is_object()) return InvalidArgument("it is no JSON object");
  HfConfig out;
  out.architecture = ArchitectureOf(config);
  if (out.architecture.empty()) {
    return InvalidArgument("it has neither architectures nor model_type");
  }
  for (const Names& key : kKeys) {
    const Json* value = Find(config, std::string(key.theirs).c_str());
    if (value != nullptr) {
      out.values[std::string(key.ours)] = ValueOf(*value);
    }
  }
  RETURN_IF_ERROR(RefuseWhatIsNotServed(config, out.architecture));
  RETURN_IF_ERROR(ReadRope(config, out));
  if (const auto part = NumberOf(config, "partial_rotary_factor");
      part && *part != 1) {
    return Unimplemented("partial_rotary_factor is " + std::to_string(*part) +
                         ": rotating a part of a head is not supported");
  }
  ReadSlidingLayers(config, out);
  if (const Json* tied = Find(config, "tie_word_embeddings");
      tied != nullptr && tied->is_boolean()) {
    out.tied_output = tied->get<bool>();
  }
  ASSIGN_OR_RETURN(out.eos_ids, ReadHfIds(config, "eos_token_id"));
  return out;
}

std::string HfKeyName(std::string_view key) {
  for (const Names& known : kKeys) {
    if (known.ours == key) return std::string(known.theirs);
  }
  if (key.starts_with("rope.scaling.")) {
    return "rope_scaling" + std::string(key.substr(key.rfind('.')));
  }
  return std::string(key);
}

std::string NameOfHfTensor(std::string_view hf_name,
                           std::string_view architecture) {
  for (const Names& known : kTensors) {
    if (known.theirs == hf_name) return std::string(known.ours);
  }
  if (const auto layer = CutLayer(hf_name, kTheirLayer)) {
    const std::string before =
        std::string(kOurLayer) + std::string(layer->first) + ".";
    for (const Names& known : LayerNames(architecture)) {
      if (known.theirs == layer->second)
        return before + std::string(known.ours);
    }
  }
  return "";
}

std::string HfTensorName(std::string_view name, std::string_view architecture) {
  for (const Names& known : kTensors) {
    if (known.ours == name) return std::string(known.theirs);
  }
  if (const auto layer = CutLayer(name, kOurLayer)) {
    const std::string before =
        std::string(kTheirLayer) + std::string(layer->first) + ".";
    for (const Names& known : LayerNames(architecture)) {
      if (known.ours == layer->second)
        return before + std::string(known.theirs);
    }
  }
  return std::string(name);
}

bool IsIdleHfTensor(std::string_view hf_name) {
  return hf_name.ends_with(".rotary_emb.inv_freq") ||
         hf_name.ends_with(".masked_bias");
}

StatusOr<std::vector<int64_t>> ReadHfIds(const Json& object, const char* key) {
  std::vector<int64_t> out;
  const Json* value = Find(object, key);
  if (value == nullptr) return out;
  const Json list = value->is_array() ? *value : Json::array({*value});
  for (const Json& item : list) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > INT32_MAX) {
      return InvalidArgument(std::string(key) + " holds " +
                             DumpJson(item).substr(0, 40) +
                             ", which is no token id");
    }
    out.push_back(item.get<int64_t>());
  }
  return out;
}

}  // namespace millrace::models
