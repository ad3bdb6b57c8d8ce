// A model's weights as its recipe names them; the backend owns the bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "config/base/status.h"
#include "models/backend/backend.h"
#include "models/llm/config.h"

namespace millrace::models {

struct LayerWeights {
  Backend::Vector attn_norm;
  const Linear* qkv;
  const Linear* attn_output;
  Backend::Vector ffn_norm;
  const Linear* gate_up;
  const Linear* down;
};

struct ModelWeights {
  const Linear* embedding;
  std::vector<LayerWeights> layers;
  Backend::Vector output_norm;
  const Linear* output;  // the embedding when tied
};

// Gives all tensors to the backend and packs them; the source's pages are
// dropped from memory afterwards. With `finer`, activations are rounded more
// carefully before integer weights.
StatusOr<ModelWeights> LoadWeights(const ModelSource& source,
                                   const ModelTensors& tensors, bool finer,
                                   Backend& backend,
                                   const std::function<void(double)>& progress);

// Radians a position for each pair of a head, scaling and the file's own
// factors included.
std::vector<float> RopeFrequencies(const ModelConfig& config,
                                   const ModelTensors& tensors);

}  // namespace millrace::models
