// What one layer of a language model computes, beyond the sizes that all layers
// share. A family's recipe fills one for each layer from the file's metadata;
// which tensors the layer has, and which phases it records, follow from it.
#pragma once

#include <cstdint>

#include "models/llm/backend.h"

namespace millrace::models {

struct LayerSpec {
  // ---- attention ----
  int32_t window = 0;     // keys a token sees, its own the last; 0: all
  int32_t rope = 0;       // index of ModelConfig::ropes
  bool qkv_bias = false;  // q, k and v have one
  bool qk_norm = false;   // RMS norms over each head of q and of k
  float softcap = 0;      // scores become cap * tanh(score / cap); 0: none
  // ---- norms and feed-forward ----
  // RMS norms over what attention and feed-forward add to the residual, beside
  // those before them.
  bool post_norms = false;
  Activation activation = Activation::kSilu;  // of the gate
};

}  // namespace millrace::models
