// config.json of a Hugging Face folder under the names that a ModelSource uses,
// and the tensors' names likewise. One table each: a new family adds rows.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "models/llm/source.h"

namespace millrace::models {

struct HfConfig {
  std::string architecture;  // "llama"; the folder's own word when not known
  std::map<std::string, SourceValue> values;  // by ModelSource's keys
  std::vector<float> rope_factors;            // [head_dim / 2], or empty: none
  std::optional<bool> tied_output;            // absent: the folder does not say
  std::vector<int64_t> eos_ids;
};

// INVALID_ARGUMENT or UNIMPLEMENTED names the key.
StatusOr<HfConfig> ReadHfConfig(const nlohmann::ordered_json& config);

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

// A token id, or a list of them; absent or null: none.
StatusOr<std::vector<int64_t>> ReadHfIds(const nlohmann::ordered_json& object,
                                         const char* key);

}  // namespace millrace::models
