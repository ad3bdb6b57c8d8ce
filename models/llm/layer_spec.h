// What one layer of a language model computes, beyond the sizes that all layers
// share. A family's recipe fills one for each layer from the file's metadata;
// which tensors the layer has, and which phases it records, follow from it.
#pragma once

#include <cstdint>

#include "models/llm/backend.h"

namespace millrace::models {

// RMS norms of q and k before they are rotated: over each head, with weights or
// without, or over all heads of a token together.
enum class QkNorm { kNone, kHeads, kHeadsUnweighted, kWhole };

struct LayerSpec {
  // ---- attention ----
  int32_t window = 0;  // keys a token sees, its own the last; 0: all
  // Instead it sees those of its own chunk of `window` positions up to itself.
  bool chunked = false;
  // Index of ModelConfig::ropes, or kNoRope: q and k are not rotated (NoPE).
  int32_t rope = 0;
  bool fused_qkv = false;    // q, k and v are one matrix in the file
  bool qkv_bias = false;     // q, k and v have one
  bool output_bias = false;  // the projection back has one
  QkNorm qk_norm = QkNorm::kNone;
  bool q_tempered = false;  // q grows with the position, see QTemperature
  float softcap = 0;        // scores become cap * tanh(score / cap); 0: none
  bool sinks = false;       // each head has a score without a value
  // ---- norms ----
  // Before attention and feed-forward; and over what these add to the residual.
  bool pre_norms = true;
  bool post_norms = false;
  // The norm before the feed-forward has the name of one behind attention.
  bool ffn_norm_named_post_attention = false;
  // Attention and feed-forward read the same x, and join it together.
  bool parallel = false;
  // ---- feed-forward ----
  bool experts = false;        // a mixture, see ExpertConfig
  bool expert_bias = false;    // router, gates, ups and downs have one
  bool gated = true;           // down · (act(gate · x) * (up · x)), else
                               // down · act(up · x)
  bool fused_gate_up = false;  // gate and up are one matrix in the file
  bool ffn_bias = false;       // up and down have one; not where gated
  Activation activation = Activation::kSilu;
};

}  // namespace millrace::models
