// Hyper-parameters of a language model, read from a file's metadata and checked
// against its tensors, so that nothing later can meet a wrong shape.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/files/gguf.h"

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
  int32_t context = 0;  // positions the model was trained for
  float norm_eps = 0;
  RopeConfig rope;
  bool tied_output = false;  // the head is the embedding
  bool qkv_bias = false;     // q, k and v have one
};

// What a family fixes and a file does not say.
struct FamilyTraits {
  bool rope_interleaved = false;
  bool qkv_bias = false;
};

// Tensors of one layer, in the file; biases are null in families without.
struct LayerTensors {
  const GgufTensor* attn_norm;
  const GgufTensor* q;
  const GgufTensor* k;
  const GgufTensor* v;
  const GgufTensor* q_bias;
  const GgufTensor* k_bias;
  const GgufTensor* v_bias;
  const GgufTensor* attn_output;
  const GgufTensor* ffn_norm;
  const GgufTensor* gate;
  const GgufTensor* up;
  const GgufTensor* down;
};

struct ModelTensors {
  const GgufTensor* embedding;
  const GgufTensor* output_norm;
  const GgufTensor* output;        // the embedding when tied
  const GgufTensor* rope_factors;  // null: none; divides each pair's frequency
  std::vector<LayerTensors> layers;
};

// INVALID_ARGUMENT for a file that contradicts itself, UNIMPLEMENTED for what
// is right but cannot be served; both name the key or tensor.
StatusOr<ModelConfig> ReadModelConfig(const GgufFile& file,
                                      const FamilyTraits& traits);
StatusOr<ModelTensors> FindModelTensors(const GgufFile& file,
                                        const ModelConfig& config);

}  // namespace millrace::models
