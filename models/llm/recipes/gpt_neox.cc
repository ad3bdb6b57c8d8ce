// GPT-NeoX (Black et al. 2022) and Pythia: LayerNorms, biases everywhere, GELU
// between two matrices, a part of each head rotated; attention and feed-forward
// read the same x, unless the file says that they follow each other.
#include "models/llm/families.h"

namespace millrace::models {

Status DescribeGptNeox(const ModelSource& source, ModelConfig& config) {
  config.layer_norms = true;
  ASSIGN_OR_RETURN(const bool parallel,
                   source.Bool("use_parallel_residual", true));
  ASSIGN_OR_RETURN(const std::string activation,
                   source.String("hidden_activation", "gelu"));
  for (LayerSpec& layer : config.specs) {
    layer.fused_qkv = true;
    layer.qkv_bias = true;
    layer.output_bias = true;
    layer.parallel = parallel;
    layer.gated = false;
    layer.ffn_bias = true;
    layer.activation =
        activation == "gelu" ? Activation::kGeluErf : Activation::kGelu;
  }
  return OkStatus();
}

}  // namespace millrace::models
