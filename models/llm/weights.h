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

namespace millrace::models {

// Named as the file's tensors; empty where the layer's spec has none.
struct LayerWeights {
  Backend::Vector attn_norm;
  const Linear* attn_qkv;
  Backend::Vector attn_q_norm;
  Backend::Vector attn_k_norm;
  const Linear* attn_output;
  Backend::Vector post_attention_norm;
  Backend::Vector ffn_norm;
  const Linear* ffn_gate_up;
  const Linear* ffn_down;
  Backend::Vector post_ffw_norm;
};

struct ModelWeights {
  const Linear* token_embd;
  std::vector<LayerWeights> layers;
  Backend::Vector output_norm;
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

// Radians a position for each pair of a head, for each of the config's ropes;
// scaling and the file's own factors are included.
std::vector<std::vector<float>> RopeFrequencies(const ModelConfig& config,
                                                const ModelTensors& tensors);

}  // namespace millrace::models
