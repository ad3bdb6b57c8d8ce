// Hyper-parameters of a language model, read from its source and checked
// against its tensors, so that nothing later can meet a wrong shape.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/llm/layer_spec.h"
#include "models/llm/source.h"

namespace millrace::models {

// Rotary position embedding (Su et al. 2021) over whole heads.
struct RopeConfig {
  float freq_base = 10000.0f;
  float scale = 1.0f;  // positions are multiplied by it (linear scaling)
  // Whether the factors that some files hold divide its frequencies.
  bool file_factors = true;
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
  int32_t sliding_window = 0;  // of the layers that have one; 0: none has
  float norm_eps = 0;
  std::vector<RopeConfig> ropes = std::vector<RopeConfig>(1);
  // Pairs to rotate are (2i, 2i + 1), else (i, i + head_dim / 2).
  bool rope_interleaved = false;
  float attention_scale = 0;  // multiplies q · k
  float embedding_scale = 1;  // multiplies the embedding's rows
  float logit_softcap = 0;    // logits become cap * tanh(logit / cap); 0: none
  float norm_offset = 0;      // added to the weights of all norms
  bool tied_output = false;   // the head is the embedding
  std::vector<LayerSpec> specs;  // [layers]
};

// Tensors of one layer in the source, named as GGUF files name them; null where
// the layer's spec has none.
struct LayerTensors {
  const FileTensor* attn_norm;
  const FileTensor* attn_q;
  const FileTensor* attn_k;
  const FileTensor* attn_v;
  const FileTensor* attn_q_bias;
  const FileTensor* attn_k_bias;
  const FileTensor* attn_v_bias;
  const FileTensor* attn_q_norm;
  const FileTensor* attn_k_norm;
  const FileTensor* attn_output;
  const FileTensor* post_attention_norm;
  const FileTensor* ffn_norm;
  const FileTensor* ffn_gate;
  const FileTensor* ffn_up;
  const FileTensor* ffn_down;
  const FileTensor* post_ffw_norm;
};

struct ModelTensors {
  const FileTensor* token_embd;
  const FileTensor* output_norm;
  const FileTensor* output;      // the embedding when tied
  const FileTensor* rope_freqs;  // null: none; divides each pair's frequency
  std::vector<LayerTensors> layers;
};

// Reads what all families share, then has the family's recipe describe the
// rest. INVALID_ARGUMENT for a file that contradicts itself, UNIMPLEMENTED for
// what is right but cannot be served; both name the key or tensor.
StatusOr<ModelConfig> ReadModelConfig(const ModelSource& source);
StatusOr<ModelTensors> FindModelTensors(const ModelSource& source,
                                        const ModelConfig& config);

}  // namespace millrace::models
