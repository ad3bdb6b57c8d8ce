// What Hugging Face folders call families, keys and tensors, beside the names
// of GGUF files that a ModelSource uses. A new family adds rows to the tables.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

namespace millrace::models {

struct HfName {
  std::string_view ours;
  std::string_view theirs;
};

// The family's name in GGUF files; the folder's own word when it is not known,
// empty when it says nothing.
std::string HfArchitectureOf(const nlohmann::ordered_json& config);
// Whether its class is that of a family without a head ("Qwen3Model"), whose
// tensors have no "model." before their names.
bool IsBareHfModel(const nlohmann::ordered_json& config);
// The only function of the feed-forward that the family is served with.
std::string_view HfActivationOf(std::string_view architecture);
// Whether partial_rotary_factor means something to the family.
bool RotatesParts(std::string_view architecture);
// Whether matrices of layers stand transposed, [inputs][outputs].
bool IsTransposed(std::string_view architecture);

// Whether q, k and v of a head follow each other in the fused matrix, head by
// head, instead of all q, all k, all v.
bool HasQkvByHead(std::string_view architecture);

// Keys of config.json. Several of theirs may be one of ours.
std::span<const HfName> HfKeyNames();
// "block_count" → "num_hidden_layers"
std::string HfKeyName(std::string_view key);
// "blk.0.attn_q.weight" ↔ "model.layers.0.self_attn.q_proj.weight"; empty when
// there is none. Towards the folder, an unknown name stays as it is.
std::string NameOfHfTensor(std::string_view hf_name,
                           std::string_view architecture = "llama");
std::string HfTensorName(std::string_view name,
                         std::string_view architecture = "llama");
// Buffers that old folders hold beside the weights and nothing reads.
bool IsIdleHfTensor(std::string_view hf_name);

// A class that holds a language model beside an encoder of pictures, with the
// model's own configuration in text_config. Its tensors' names begin with
// `before` where a plain folder's begin with `instead`; those that begin with
// one of `others` are the encoder's.
struct HfNested {
  std::string_view class_name;
  std::string_view before;
  std::string_view instead;
  std::array<std::string_view, 2> others;
};
// Null: a plain folder.
const HfNested* HfNestedOf(const nlohmann::ordered_json& config);

}  // namespace millrace::models
