// Hyper-parameters of a language model, read from its source. Its tensors are
// checked against them (model_tensors.h), so that nothing later can meet a
// wrong shape.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/llm/layer_spec.h"
#include "models/llm/rope.h"
#include "models/llm/source.h"

namespace millrace::models {

inline constexpr int32_t kNoRope = -1;

// The feed-forwards of layers that are a mixture of experts (Shazeer et al.
// 2017): a router chooses some of them for each token.
struct ExpertConfig {
  int32_t count = 0;        // 0: no layer has any
  int32_t used = 0;         // by each token
  int32_t ffn = 0;          // of each expert
  int32_t shared_ffn = 0;   // of one more that every token uses; 0: none
  bool shared_gate = true;  // its weight is computed, else it is 1
  // The weights of the experts that a token uses are made to sum to 1.
  bool normalise = false;
  bool sigmoid_inputs = false;  // see ExpertsOptions
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
  // Norms are LayerNorms with a bias (Ba et al. 2016), else RMS norms.
  bool layer_norms = false;
  float norm_eps = 0;
  bool learned_positions = false;  // a table of them is added to the embedding
  std::vector<RopeConfig> ropes = std::vector<RopeConfig>(1);
  int32_t rope_dims =
      0;  // values of each head that are rotated, the first ones
  // Pairs to rotate are (2i, 2i + 1), else (i, i + rope_dims / 2).
  bool rope_interleaved = false;
  // The converter to GGUF changed the places of q's and k's rows, so that pairs
  // that stood rope_dims / 2 apart became neighbours.
  bool qk_rows_moved = false;
  float attention_scale = 0;   // multiplies q · k
  QTemperature q_temperature;  // of the layers whose q is tempered
  float embedding_scale = 1;   // multiplies the embedding's rows
  float residual_scale = 1;    // multiplies what a branch adds to the residual
  float logit_scale = 1;       // multiplies logits, before a soft cap
  float logit_softcap = 0;     // logits become cap * tanh(logit / cap); 0: none
  float norm_offset = 0;       // added to the weights of all norms
  bool tied_output = false;    // the head is the embedding
  ExpertConfig experts;
  std::vector<LayerSpec> specs;  // [layers]
};

// Reads what all families share, then has the family's recipe describe the
// rest. INVALID_ARGUMENT for a file that contradicts itself, UNIMPLEMENTED for
// what is right but cannot be served; both name the key or tensor.
StatusOr<ModelConfig> ReadModelConfig(const ModelSource& source);

}  // namespace millrace::models
