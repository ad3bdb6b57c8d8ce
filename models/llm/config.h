// Hyper-parameters of a language model, read from its source and checked
// against its tensors, so that nothing later can meet a wrong shape.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/llm/source.h"

namespace millrace::models {

// Rotary position embedding (Su et al. 2021) over whole heads.
struct RopeConfig {
  float freq_base = 10000.0f;
  float scale = 1.0f;        // positions are multiplied by it (linear scaling)
  bool interleaved = false;  // pairs (2i, 2i + 1), else (i, i + head_dim / 2)
};

struct ModelConfig {
  std::string architecture;
  std::string name;
  int32_t layers = 0;
  int32_t hidden = 0;
  int32_t ffn = 0;
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t vocab = 0;
  int32_t context = 0;         // positions the model was trained for
  int32_t sliding_window = 0;  // keys a row sees, its own the last; 0: all
  float norm_eps = 0;
  RopeConfig rope;
  bool tied_output = false;  // the head is the embedding
  bool qkv_bias = false;     // q, k and v have one
};

// What a family fixes and a file does not say.
struct FamilyTraits {
  bool rope_interleaved = false;  // in its GGUF files
  bool qkv_bias = false;
};

// Tensors of one layer, in the source; biases are null in families without.
struct LayerTensors {
  const FileTensor* attn_norm;
  const FileTensor* q;
  const FileTensor* k;
  const FileTensor* v;
  const FileTensor* q_bias;
  const FileTensor* k_bias;
  const FileTensor* v_bias;
  const FileTensor* attn_output;
  const FileTensor* ffn_norm;
  const FileTensor* gate;
  const FileTensor* up;
  const FileTensor* down;
};

struct ModelTensors {
  const FileTensor* embedding;
  const FileTensor* output_norm;
  const FileTensor* output;        // the embedding when tied
  const FileTensor* rope_factors;  // null: none; divides each pair's frequency
  std::vector<LayerTensors> layers;
};

// INVALID_ARGUMENT for a file that contradicts itself, UNIMPLEMENTED for what
// is right but cannot be served; both name the key or tensor.
StatusOr<ModelConfig> ReadModelConfig(const ModelSource& source,
                                      const FamilyTraits& traits);
StatusOr<ModelTensors> FindModelTensors(const ModelSource& source,
                                        const ModelConfig& config);

}  // namespace millrace::models
