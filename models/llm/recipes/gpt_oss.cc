// gpt-oss (OpenAI 2025): mixtures of experts with biases and a clamped SwiGLU,
// biases on all projections of attention, heads with a sink, and every other
// layer, from the first on, slides. YaRN without whole pairs.
#include <cmath>
#include <utility>

#include "models/llm/families.h"

namespace millrace::models {

Status DescribeGptOss(const ModelSource& source, ModelConfig& config) {
  for (LayerSpec& layer : config.specs) {
    layer.qkv_bias = true;
    layer.output_bias = true;
    layer.sinks = true;
    layer.ffn_norm_named_post_attention = !source.as_trained();
    layer.activation = Activation::kClampedSwiglu;
    layer.expert_bias = true;
  }
  for (const auto& [key, value] :
       {std::pair("swiglu_limit", 7.0), std::pair("swiglu_alpha", 1.702)}) {
    ASSIGN_OR_RETURN(const double given, source.Float(key, value));
    if (std::abs(given - value) < 1e-6) continue;
    return Unimplemented(source.KeyName(key) + " is " + std::to_string(given) +
                         "; " + std::to_string(value) + " is supported");
  }
  for (RopeConfig& rope : config.ropes) {
    ASSIGN_OR_RETURN(rope.whole_pairs,
                     source.Bool("rope.scaling.truncate", source.as_trained()));
  }
  // Its softmax is over the experts in use.
  RETURN_IF_ERROR(SetExperts(source, true, config));
  for (size_t i = 0; i < config.specs.size(); ++i) {
    if (!config.specs[i].experts) {
      return InvalidArgument("layer " + std::to_string(i) + " has no tensor '" +
                             source.TensorName("blk." + std::to_string(i) +
                                               ".ffn_gate_inp.weight") +
                             "'");
    }
  }
  return SetWindows(
             source, [](int32_t layer) { return layer % 2 == 0; }, config)
      .status();
}

}  // namespace millrace::models
