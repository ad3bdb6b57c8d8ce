#include "models/llm/hf_names.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "models/llm/hf_json.h"
#include "models/llm/layer_name.h"

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;

constexpr HfName kKeys[] = {
    {"block_count", "num_hidden_layers"},
    {"block_count", "n_layer"},
    {"context_length", "max_position_embeddings"},
    {"context_length", "n_positions"},
    {"embedding_length", "hidden_size"},
    {"embedding_length", "n_embd"},
    {"feed_forward_length", "intermediate_size"},
    {"feed_forward_length", "n_inner"},
    {"feed_forward_length", "intermediate_size_mlp"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count", "n_head"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.value_length", "head_dim"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.layer_norm_epsilon", "norm_epsilon"},
    {"attention.layer_norm_epsilon", "layer_norm_epsilon"},
    {"attention.layer_norm_epsilon", "layer_norm_eps"},
    {"use_parallel_residual", "use_parallel_residual"},
    {"attention.query_pre_attn_scalar", "query_pre_attn_scalar"},
    {"attention.scale", "attention_multiplier"},
    {"attention.clamp_kqv", "clip_qkv"},
    {"attention.chunk_size", "attention_chunk_size"},
    {"attention.temperature_length", "floor_scale"},
    {"attention.temperature_scale", "attn_scale"},
    {"attention.qk_norm", "use_qk_norm"},
    {"embedding_scale", "embedding_multiplier"},
    {"residual_scale", "residual_multiplier"},
    {"logit_scale", "logits_scaling"},
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"},
    {"rope.freq_base", "rope_theta"},
    {"rope.freq_base", "rotary_emb_base"},
    {"rope.freq_base_swa", "rope_local_base_freq"},
    {"rope.scaling.original_context_length",
     "original_max_position_embeddings"},
    {"swiglu_limit", "swiglu_limit"},
    {"swiglu_alpha", "swiglu_alpha"},
    {"expert_count", "num_local_experts"},
    {"expert_count", "num_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
    {"expert_weights_norm", "norm_topk_prob"},
};

constexpr HfName kTensors[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output_norm.bias", "model.norm.bias"},
    {"output.weight", "lm_head.weight"},
};
// "#" is the number of an expert.
constexpr HfName kLayerTensors[] = {
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
// Those that a family has come before those above.
constexpr HfName kPostNormTensors[] = {
    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight"},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight"},
};
constexpr HfName kFusedTensors[] = {
    {"attn_qkv.weight", "self_attn.qkv_proj.weight"},
    {"ffn_up.weight", "mlp.gate_up_proj.weight"},
};
constexpr HfName kStarcoderTensors[] = {
    {"attn_norm.bias", "input_layernorm.bias"},
    {"attn_output.bias", "self_attn.o_proj.bias"},
    {"ffn_norm.bias", "post_attention_layernorm.bias"},
    {"ffn_up.weight", "mlp.c_fc.weight"},
    {"ffn_up.bias", "mlp.c_fc.bias"},
    {"ffn_down.weight", "mlp.c_proj.weight"},
    {"ffn_down.bias", "mlp.c_proj.bias"},
};
constexpr HfName kMixtralTensors[] = {
    {"ffn_gate_inp.weight", "block_sparse_moe.gate.weight"},
    {"ffn_gate.#.weight", "block_sparse_moe.experts.#.w1.weight"},
    {"ffn_up.#.weight", "block_sparse_moe.experts.#.w3.weight"},
    {"ffn_down.#.weight", "block_sparse_moe.experts.#.w2.weight"},
};
constexpr HfName kExpertTensors[] = {
    {"ffn_gate_inp.weight", "mlp.gate.weight"},
    {"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight"},
    {"ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight"},
    {"ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight"},
    {"ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight"},
    {"ffn_gate.#.weight", "mlp.experts.#.gate_proj.weight"},
    {"ffn_up.#.weight", "mlp.experts.#.up_proj.weight"},
    {"ffn_down.#.weight", "mlp.experts.#.down_proj.weight"},
};
constexpr HfName kGpt2Model[] = {
    {"token_embd.weight", "transformer.wte.weight"},
    {"position_embd.weight", "transformer.wpe.weight"},
    {"output_norm.weight", "transformer.ln_f.weight"},
    {"output_norm.bias", "transformer.ln_f.bias"},
};
constexpr HfName kGpt2Tensors[] = {
    {"attn_norm.weight", "ln_1.weight"},
    {"attn_norm.bias", "ln_1.bias"},
    {"attn_qkv.weight", "attn.c_attn.weight"},
    {"attn_qkv.bias", "attn.c_attn.bias"},
    {"attn_output.weight", "attn.c_proj.weight"},
    {"attn_output.bias", "attn.c_proj.bias"},
    {"ffn_norm.weight", "ln_2.weight"},
    {"ffn_norm.bias", "ln_2.bias"},
    {"ffn_up.weight", "mlp.c_fc.weight"},
    {"ffn_up.bias", "mlp.c_fc.bias"},
    {"ffn_down.weight", "mlp.c_proj.weight"},
    {"ffn_down.bias", "mlp.c_proj.bias"},
};
constexpr HfName kNeoxModel[] = {
    {"token_embd.weight", "gpt_neox.embed_in.weight"},
    {"output_norm.weight", "gpt_neox.final_layer_norm.weight"},
    {"output_norm.bias", "gpt_neox.final_layer_norm.bias"},
    {"output.weight", "embed_out.weight"},
};
constexpr HfName kNeoxTensors[] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"attn_norm.bias", "input_layernorm.bias"},
    {"attn_qkv.weight", "attention.query_key_value.weight"},
    {"attn_qkv.bias", "attention.query_key_value.bias"},
    {"attn_output.weight", "attention.dense.weight"},
    {"attn_output.bias", "attention.dense.bias"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_norm.bias", "post_attention_layernorm.bias"},
    {"ffn_up.weight", "mlp.dense_h_to_4h.weight"},
    {"ffn_up.bias", "mlp.dense_h_to_4h.bias"},
    {"ffn_down.weight", "mlp.dense_4h_to_h.weight"},
    {"ffn_down.bias", "mlp.dense_4h_to_h.bias"},
};
// The experts' tensors of these two have no names here: see hf_experts.h.
constexpr HfName kLlama4Tensors[] = {
    {"ffn_gate_inp.weight", "feed_forward.router.weight"},
    {"ffn_gate_shexp.weight", "feed_forward.shared_expert.gate_proj.weight"},
    {"ffn_up_shexp.weight", "feed_forward.shared_expert.up_proj.weight"},
    {"ffn_down_shexp.weight", "feed_forward.shared_expert.down_proj.weight"},
    {"ffn_gate.weight", "feed_forward.gate_proj.weight"},
    {"ffn_up.weight", "feed_forward.up_proj.weight"},
    {"ffn_down.weight", "feed_forward.down_proj.weight"},
};
constexpr HfName kGptOssTensors[] = {
    {"attn_output.bias", "self_attn.o_proj.bias"},
    {"attn_sinks.weight", "self_attn.sinks"},
    {"ffn_gate_inp.weight", "mlp.router.weight"},
    {"ffn_gate_inp.bias", "mlp.router.bias"},
};
constexpr HfNested kNested[] = {
    {"Llama4ForConditionalGeneration",
     "language_model.",
     "",
     {"vision_model.", "multi_modal_projector."}},
    {"Idefics3ForConditionalGeneration",
     "model.text_model.",
     "model.",
     {"model.vision_model.", "model.connector."}},
    {"SmolVLMForConditionalGeneration",
     "model.text_model.",
     "model.",
     {"model.vision_model.", "model.connector."}},
};
constexpr std::string_view kOurLayer = "blk.";
constexpr std::string_view kGelu = "gelu_pytorch_tanh";

// A family of folders.
struct HfFamily {
  std::string_view class_name;
  std::string_view model_type;
  std::string_view name;
  std::string_view activation = "silu";
  std::span<const HfName> layer_tensors = {};
  bool rotates_parts = false;
  // Of tensors outside layers those whose names are not llama's.
  std::span<const HfName> model_tensors = {};
  std::string_view layer = "model.layers.";
};
constexpr HfFamily kHfFamilies[] = {
    {"LlamaForCausalLM", "llama", "llama", "silu", kMixtralTensors},
    {"MistralForCausalLM", "mistral", "llama"},
    {"MixtralForCausalLM", "mixtral", "llama"},
    {"MinistralForCausalLM", "ministral", "llama"},
    {"Qwen2ForCausalLM", "qwen2", "qwen2"},
    {"Qwen3ForCausalLM", "qwen3", "qwen3"},
    {"Qwen2MoeForCausalLM", "qwen2_moe", "qwen2moe", "silu", kExpertTensors},
    {"Qwen3MoeForCausalLM", "qwen3_moe", "qwen3moe", "silu", kExpertTensors},
    {"Gemma2ForCausalLM", "gemma2", "gemma2", kGelu, kPostNormTensors},
    {"Gemma3ForCausalLM", "gemma3_text", "gemma3", kGelu, kPostNormTensors},
    {"GraniteForCausalLM", "granite", "granite"},
    {"SmolLM3ForCausalLM", "smollm3", "smollm3"},
    {"Olmo2ForCausalLM", "olmo2", "olmo2", "silu", kPostNormTensors},
    {"OlmoeForCausalLM", "olmoe", "olmoe", "silu", kExpertTensors},
    {"Phi3ForCausalLM", "phi3", "phi3", "silu", kFusedTensors, true},
    {"Starcoder2ForCausalLM", "starcoder2", "starcoder2", kGelu,
     kStarcoderTensors},
    {"GPT2LMHeadModel", "gpt2", "gpt2", kGelu, kGpt2Tensors, false, kGpt2Model,
     "transformer.h."},
    {"GPTNeoXForCausalLM", "gpt_neox", "gptneox", "gelu", kNeoxTensors, true,
     kNeoxModel, "gpt_neox.layers."},
    {"Llama4ForCausalLM", "llama4_text", "llama4", "silu", kLlama4Tensors},
    {"GptOssForCausalLM", "gpt_oss", "gpt-oss", "silu", kGptOssTensors},
};

// Null: unknown. Rows of one name share what the first of them says.
const HfFamily* FamilyOf(std::string_view architecture) {
  for (const HfFamily& known : kHfFamilies) {
    if (known.name == architecture) return &known;
  }
  return nullptr;
}

bool IsGpt2(std::string_view architecture) { return architecture == "gpt2"; }

std::string_view LayerPrefix(std::string_view architecture) {
  const HfFamily* family = FamilyOf(architecture);
  return family != nullptr ? family->layer : HfFamily{}.layer;
}

std::vector<HfName> ModelNames(std::string_view architecture) {
  std::vector<HfName> names(std::begin(kTensors), std::end(kTensors));
  if (const HfFamily* family = FamilyOf(architecture)) {
    names.insert(names.begin(), family->model_tensors.begin(),
                 family->model_tensors.end());
  }
  return names;
}

std::vector<HfName> LayerNames(std::string_view architecture) {
  std::vector<HfName> names;
  if (const HfFamily* family = FamilyOf(architecture)) {
    names.assign(family->layer_tensors.begin(), family->layer_tensors.end());
  }
  if (LayerPrefix(architecture) == HfFamily{}.layer) {
    names.insert(names.end(), std::begin(kLayerTensors),
                 std::end(kLayerTensors));
  }
  return names;
}

// "a.12.b" → ("a.#.b", "12"), or the name as it is.
std::pair<std::string, std::string> CutNumber(std::string_view name) {
  size_t begin = 0;
  while (begin < name.size()) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view word = name.substr(begin, end - begin);
    const bool is_number =
        !word.empty() && word.size() < 6 &&
        word.find_first_not_of("0123456789") == std::string_view::npos &&
        (word == "0" || word[0] != '0');
    if (is_number) {
      return {std::string(name.substr(0, begin)) + "#" +
                  std::string(name.substr(end)),
              std::string(word)};
    }
    begin = end + 1;
  }
  return {std::string(name), ""};
}

// The first class that a config names, or "".
std::string ClassOf(const Json& config) {
  const Json* list = Find(config, "architectures");
  return list != nullptr && list->is_array() && !list->empty() &&
                 list->front().is_string()
             ? list->front().get<std::string>()
             : "";
}

// "Qwen3ForCausalLM" → "Qwen3Model"; "" where the class has another ending.
std::string BareClass(const HfFamily& family) {
  constexpr std::string_view kEnding = "ForCausalLM";
  std::string_view name = family.class_name;
  if (!name.ends_with(kEnding)) return "";
  name.remove_suffix(kEnding.size());
  return std::string(name) + "Model";
}

// Puts the number back.
std::string WithNumber(std::string_view pattern, const std::string& number) {
  std::string out(pattern);
  if (const size_t at = out.find('#'); at != std::string::npos) {
    out.replace(at, 1, number);
  }
  return out;
}

}  // namespace

std::string HfArchitectureOf(const Json& config) {
  const std::string class_name = ClassOf(config);
  const std::string model_type = TextOf(config, "model_type");
  for (const HfFamily& known : kHfFamilies) {
    if (class_name.empty() ? model_type == known.model_type
                           : class_name == known.class_name ||
                                 class_name == BareClass(known)) {
      return std::string(known.name);
    }
  }
  return class_name.empty() ? model_type : class_name;
}

bool IsBareHfModel(const Json& config) {
  const std::string class_name = ClassOf(config);
  // Some families have no bare class.
  return !class_name.empty() &&
         std::any_of(std::begin(kHfFamilies), std::end(kHfFamilies),
                     [&](const HfFamily& known) {
                       return class_name == BareClass(known);
                     });
}

const HfNested* HfNestedOf(const Json& config) {
  const Json* inner = Find(config, "text_config");
  if (inner == nullptr || !inner->is_object()) return nullptr;
  const std::string class_name = ClassOf(config);
  for (const HfNested& known : kNested) {
    if (class_name == known.class_name) return &known;
  }
  return nullptr;
}

std::string_view HfActivationOf(std::string_view architecture) {
  const HfFamily* family = FamilyOf(architecture);
  return family != nullptr ? family->activation : "silu";
}

bool RotatesParts(std::string_view architecture) {
  const HfFamily* family = FamilyOf(architecture);
  return family != nullptr && family->rotates_parts;
}

bool IsTransposed(std::string_view architecture) {
  return IsGpt2(architecture);
}

bool HasQkvByHead(std::string_view architecture) {
  return architecture == "gptneox";
}

std::span<const HfName> HfKeyNames() { return kKeys; }

std::string HfKeyName(std::string_view key) {
  for (const HfName& known : kKeys) {
    if (known.ours == key) return std::string(known.theirs);
  }
  if (key.starts_with("rope.scaling.")) {
    return "rope_scaling" + std::string(key.substr(key.rfind('.')));
  }
  return std::string(key);
}

std::string NameOfHfTensor(std::string_view hf_name,
                           std::string_view architecture) {
  // Folders of GPT-2 itself leave the first word out.
  std::string whole(hf_name);
  if (IsGpt2(architecture) && !hf_name.starts_with("transformer.") &&
      !hf_name.starts_with("lm_head.")) {
    whole = "transformer." + whole;
  }
  // So do those of models without a head.
  for (const char* bare : {"layers.", "embed_tokens.", "norm."}) {
    if (hf_name.starts_with(bare)) whole = "model." + whole;
  }
  for (const HfName& known : ModelNames(architecture)) {
    if (known.theirs == whole) return std::string(known.ours);
  }
  if (const auto layer = CutLayer(whole, LayerPrefix(architecture))) {
    const std::string before =
        std::string(kOurLayer) + std::to_string(layer->layer) + ".";
    const auto [pattern, number] = CutNumber(layer->part);
    for (const HfName& known : LayerNames(architecture)) {
      if (known.theirs == pattern) {
        return before + WithNumber(known.ours, number);
      }
    }
  }
  return "";
}

std::string HfTensorName(std::string_view name, std::string_view architecture) {
  for (const HfName& known : ModelNames(architecture)) {
    if (known.ours == name) return std::string(known.theirs);
  }
  if (const auto layer = CutLayer(name, kOurLayer)) {
    const std::string before = std::string(LayerPrefix(architecture)) +
                               std::to_string(layer->layer) + ".";
    const auto [pattern, number] = CutNumber(layer->part);
    for (const HfName& known : LayerNames(architecture)) {
      if (known.ours == pattern) {
        return before + WithNumber(known.theirs, number);
      }
    }
  }
  return std::string(name);
}

bool IsIdleHfTensor(std::string_view hf_name) {
  return hf_name.ends_with(".rotary_emb.inv_freq") ||
         hf_name.ends_with(".masked_bias") || hf_name.ends_with(".attn.bias") ||
         hf_name.ends_with(".attention.bias");
}

}  // namespace millrace::models
