// The tensors of a model in its source, checked against its hyper-parameters.
#pragma once

#include <memory>
#include <vector>

#include "config/base/status.h"
#include "models/llm/config.h"
#include "models/llm/source.h"

namespace millrace::models {

// Matrices of one expert.
struct ExpertTensors {
  const FileTensor* gate;
  const FileTensor* up;
  const FileTensor* down;
  const FileTensor* gate_bias;
  const FileTensor* up_bias;
  const FileTensor* down_bias;
};

// Tensors of one layer in the source, named as GGUF files name them; null where
// the layer's spec has none.
struct LayerTensors {
  const FileTensor* attn_norm;
  const FileTensor* attn_norm_bias;
  const FileTensor* attn_q;
  const FileTensor* attn_k;
  const FileTensor* attn_v;
  const FileTensor* attn_q_bias;
  const FileTensor* attn_k_bias;
  const FileTensor* attn_v_bias;
  const FileTensor* attn_q_norm;
  const FileTensor* attn_k_norm;
  const FileTensor* attn_output;
  const FileTensor* attn_output_bias;
  const FileTensor* attn_sinks;
  const FileTensor* post_attention_norm;
  const FileTensor* ffn_norm;
  const FileTensor* ffn_norm_bias;
  const FileTensor* ffn_gate;
  const FileTensor* ffn_up;
  const FileTensor* ffn_up_bias;
  const FileTensor* ffn_down;
  const FileTensor* ffn_down_bias;
  const FileTensor* post_ffw_norm;
  // Of a layer with experts, which has no feed-forward of its own.
  const FileTensor* ffn_gate_inp;  // the router
  const FileTensor* ffn_gate_inp_bias;
  const FileTensor* ffn_gate_inp_shexp;  // the gate of the shared expert
  std::vector<ExpertTensors> experts;    // the shared one last
};

struct ModelTensors {
  const FileTensor* token_embd;
  const FileTensor* position_embd;  // null: none
  const FileTensor* output_norm;
  const FileTensor* output_norm_bias;
  const FileTensor* output;      // the embedding when tied
  const FileTensor* rope_freqs;  // null: none; divides each pair's frequency
  const FileTensor* rope_short;  // the two sets of LongRoPE, or null
  const FileTensor* rope_long;
  std::vector<LayerTensors> layers;
  // Rows of matrices that stand in one with others; the layers point to them.
  // Shared: copies of these tensors point to the same ones.
  std::vector<std::shared_ptr<const FileTensor>> parts;
};

// INVALID_ARGUMENT for a tensor that is absent or of another shape than the
// metadata say, UNIMPLEMENTED for one that cannot be served; both name it.
StatusOr<ModelTensors> FindModelTensors(const ModelSource& source,
                                        const ModelConfig& config);

}  // namespace millrace::models
