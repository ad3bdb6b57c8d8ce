// y = (conv(x) - mean) * s + beta with s = gamma / sqrt(var + eps) is a
// convolution with weights w * s and bias (b - mean) * s + beta. Weights are
// multiplied when they are packed, so that there is no other copy of them.
#include <cmath>
#include <utility>

#include "models/graph/op.h"
#include "models/graph/passes/editor.h"
#include "models/graph/passes/passes.h"

namespace millrace::models::graph {
namespace {

bool AllFloats(const std::vector<const Tensor*>& tensors, int64_t channels) {
  for (const Tensor* tensor : tensors) {
    if (tensor == nullptr || tensor->dtype() != DType::kF32 ||
        tensor->num_elements() != channels) {
      return false;
    }
  }
  return true;
}

void FoldInto(Editor& editor, const Node& norm, Node& conv) {
  const Tensor* weight = editor.Constant(conv.inputs[1]);
  const ValueId bias_id = conv.inputs.size() > 2 ? conv.inputs[2] : kNoValue;
  if (weight == nullptr || weight->dtype() != DType::kF32 ||
      weight->shape().rank() < 3 || norm.inputs.size() != 5) {
    return;
  }
  const int64_t channels = weight->shape()[0];
  std::vector<const Tensor*> given;
  for (size_t i = 1; i < 5; ++i) {
    given.push_back(editor.Constant(norm.inputs[i]));
  }
  const Tensor* bias = editor.Constant(bias_id);
  if (!AllFloats(given, channels) ||
      (bias_id != kNoValue && !AllFloats({bias}, channels))) {
    return;
  }
  const float* gamma = given[0]->data<float>();
  const float* beta = given[1]->data<float>();
  const float* mean = given[2]->data<float>();
  const float* var = given[3]->data<float>();
  const double epsilon = norm.attrs.Float("epsilon", 1e-5);
  std::vector<double> factors;
  Tensor shift = Tensor::Make(DType::kF32, {channels});
  const int64_t each = weight->num_elements() / channels;
  for (int64_t c = 0; c < channels; ++c) {
    const double s = gamma[c] / std::sqrt(var[c] + epsilon);
    const double b = bias != nullptr ? bias->data<float>()[c] : 0.0;
    shift.data<float>()[c] = static_cast<float>((b - mean[c]) * s + beta[c]);
    factors.push_back(s);
  }
  const auto scale = [factors = std::move(factors), each](std::byte* copy) {
    auto* w = reinterpret_cast<float*>(copy);
    for (const double s : factors) {
      for (const float* end = w + each; w < end; ++w) {
        *w = static_cast<float>(*w * s);
      }
    }
  };
  const ValueId w =
      editor.AddConstant(norm.name, Tensor::Derived(*weight, scale));
  const ValueId b = editor.AddConstant(norm.name, std::move(shift));
  editor.Rewrite(conv, *conv.op, {conv.inputs[0], w, b}, conv.attrs);
  editor.Replace(norm.outputs[0], conv.outputs[0]);
}

}  // namespace

void FoldBatchNorms(Graph& graph) {
  Editor editor(graph);
  for (Node& node : graph.nodes) {
    if (!node.Is("BatchNormalization") ||
        node.attrs.Int("training_mode", 0) != 0) {
      continue;
    }
    Node* conv = editor.SoleMaker(node.inputs[0], "Conv");
    if (conv != nullptr) FoldInto(editor, node, *conv);
  }
  editor.Finish();
}

}  // namespace millrace::models::graph
