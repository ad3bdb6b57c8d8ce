// Operators that we have not, written with those we have.
#include <string_view>
#include <utility>

#include "models/graph/onnx/rewrite.h"
#include "models/tensor/strings.h"

namespace millrace::models::graph {
namespace {

using Values = StatusOr<std::vector<ValueId>>;

template <typename T>
Tensor List(DType dtype, const std::vector<T>& values) {
  return Tensor::From<T>(dtype, {static_cast<int64_t>(values.size())},
                         std::span(values));
}

std::vector<float> Floats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

Values Constant(NodeWriter& node) {
  const auto given = [&](const char* attr) { return node.attrs.Has(attr); };
  ValueId value = kNoValue;
  if (given("value_int")) {
    value = node.Int(node.attrs.Int("value_int", 0));
  } else if (given("value_ints")) {
    value = node.Ints(node.attrs.Ints("value_ints"));
  } else if (given("value_float")) {
    value = node.Float(static_cast<float>(node.attrs.Float("value_float", 0)));
  } else if (given("value_floats")) {
    value = node.Constant(
        List(DType::kF32, Floats(node.attrs.Floats("value_floats"))));
  } else if (given("value_string")) {
    const std::string_view text = node.attrs.Text("value_string", "");
    value = node.Constant(MakeStrings({}, {&text, 1}));
  } else if (given("value_strings")) {
    const auto& texts = node.attrs.Texts("value_strings");
    value = node.Constant(
        MakeStrings({static_cast<int64_t>(texts.size())},
                    std::vector<std::string_view>(texts.begin(), texts.end())));
  } else {
    StatusOr<Tensor> tensor = node.tensor_attr("value");
    if (tensor.status().code() == StatusCode::kNotFound) {
      return Unimplemented("the constant is no tensor of numbers");
    }
    RETURN_IF_ERROR(tensor.status());
    value = node.Constant(*std::move(tensor));
  }
  return std::vector<ValueId>{value};
}

Values ConstantOfShape(NodeWriter& node) {
  StatusOr<Tensor> fill = node.tensor_attr("value");
  if (fill.status().code() == StatusCode::kNotFound) fill = Tensor::Scalar(0.f);
  RETURN_IF_ERROR(fill.status());
  if (fill->num_elements() != 1) {
    return InvalidArgument("'value' has " +
                           std::to_string(fill->num_elements()) +
                           " elements instead of one");
  }
  const ValueId one = node.Constant(fill->Reshaped({}));
  return std::vector<ValueId>{node.Emit("Expand", {one, node.in(0)})};
}

// The loss of scores that are logarithms of probabilities, [n, c, …], where
// `target` [n, …] names the class.
Values Loss(NodeWriter& node, ValueId logs) {
  const ValueId target = node.in(1);
  const ValueId weights = node.in(2);
  const std::string reduction(node.attrs.Text("reduction", "mean"));
  const bool ignores = node.attrs.Has("ignore_index");
  const ValueId one_axis = node.Ints({1});
  ValueId classes = target;
  ValueId ignored = kNoValue;
  if (ignores) {
    const int64_t index = node.attrs.Int("ignore_index", 0);
    ignored = node.Emit(
        "Equal", {target, node.Emit("CastLike", {node.Int(index), target})});
    classes = node.Emit(
        "Where",
        {ignored, node.Emit("CastLike", {node.Int(0), target}), target});
  }
  const ValueId picked = node.Emit(
      "GatherElements", {logs, node.Emit("Unsqueeze", {classes, one_axis})},
      {{"axis", AttrValue(int64_t{1})}});
  ValueId loss = node.Emit("Neg", {node.Emit("Squeeze", {picked, one_axis})});
  ValueId scale = kNoValue;
  if (weights != kNoValue) {
    scale = node.Emit("Gather", {weights, classes});
  } else if (ignores) {
    scale = node.Emit("Expand",
                      {node.FloatLike(1, logs), node.Emit("Shape", {target})});
  }
  if (ignores) {
    scale = node.Emit("Where", {ignored, node.FloatLike(0, logs), scale});
  }
  if (scale != kNoValue) loss = node.Emit("Mul", {loss, scale});
  const Attrs drops = {{"keepdims", AttrValue(int64_t{0})}};
  if (reduction == "sum") {
    loss = node.Emit("ReduceSum", {loss}, drops);
  } else if (reduction == "mean" && scale == kNoValue) {
    loss = node.Emit("ReduceMean", {loss}, drops);
  } else if (reduction == "mean") {
    loss = node.Emit("Div", {node.Emit("ReduceSum", {loss}, drops),
                             node.Emit("ReduceSum", {scale}, drops)});
  } else if (reduction != "none") {
    return InvalidArgument("there is no reduction '" + reduction + "'");
  }
  return std::vector<ValueId>{loss};
}

Values NegativeLogLikelihood(NodeWriter& node) {
  return Loss(node, node.in(0));
}

Values SoftmaxCrossEntropy(NodeWriter& node) {
  const ValueId logs =
      node.Emit("LogSoftmax", {node.in(0)}, {{"axis", AttrValue(int64_t{1})}});
  ASSIGN_OR_RETURN(std::vector<ValueId> outputs, Loss(node, logs));
  outputs.push_back(logs);
  return outputs;
}

// ONNX Runtime's name, which it writes into ONNX's own domain.
Values SimplifiedLayerNormalization(NodeWriter& node) {
  if (node.Wants(1)) return Unimplemented("its statistics are asked for");
  node.op = "RMSNormalization";
  return node.EmitSelf();
}

constexpr RewriteRow kRows[] = {
    {"Constant", Constant},
    {"ConstantOfShape", ConstantOfShape},
    {"NegativeLogLikelihoodLoss", NegativeLogLikelihood},
    {"SimplifiedLayerNormalization", SimplifiedLayerNormalization},
    {"SoftmaxCrossEntropyLoss", SoftmaxCrossEntropy},
};

}  // namespace

Rewrite FindExpansion(std::string_view op) { return FindRow(kRows, op); }

}  // namespace millrace::models::graph
