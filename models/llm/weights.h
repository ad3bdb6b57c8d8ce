// A model's weights as its recipe names them; the backend owns the bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/llm/backend.h"
#include "models/llm/config.h"
#include "models/llm/model_tensors.h"

namespace millrace::models {

// Named as the file's tensors; empty where the layer's spec has none.
struct LayerWeights {
  Norm attn_norm;
  const Linear* attn_qkv;
  Backend::Vector attn_q_norm;
  Backend::Vector attn_k_norm;
  Backend::Vector attn_sinks;
  const Linear* attn_output;
  Norm post_attention_norm;
  Norm ffn_norm;
  const Linear* ffn_gate_up;  // or up alone
  const Linear* ffn_down;
  Norm post_ffw_norm;
  const Linear* router;  // null: a dense layer
  std::vector<Expert> experts;
};

struct ModelWeights {
  const Linear* token_embd;
  const Linear* position_embd;  // null: none
  std::vector<LayerWeights> layers;
  Norm output_norm;
  const Linear* output;  // the embedding when tied
};

// What float matrices are rounded to while packed; absent: left as they are.
struct QuantizeTo {
  std::optional<GgmlType> layers;
  std::optional<GgmlType> outside;  // embedding and head
};
// From a setting: "none", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1". Embedding and
// head keep 8 bits, as in files made with these types. INVALID_ARGUMENT when
// the weights are not floats.
StatusOr<QuantizeTo> ReadQuantize(const std::string& name,
                                  const ModelTensors& tensors);

// Gives all tensors to the backend and packs them; the source's pages are
// dropped from memory afterwards. With `finer`, activations are rounded more
// carefully before integer weights.
StatusOr<ModelWeights> LoadWeights(const ModelSource& source,
                                   const ModelConfig& config,
                                   const ModelTensors& tensors, bool finer,
                                   const QuantizeTo& quantize, Backend& backend,
                                   const std::function<void(double)>& progress);

// Of each of the config's ropes, for sequences of up to `context` tokens.
std::vector<RopeTable> RopeTables(const ModelConfig& config,
                                  const ModelTensors& tensors, int32_t context);

}  // namespace millrace::models
