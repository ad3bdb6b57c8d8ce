// Operators that we have not, written with those we have.
#include <algorithm>
#include <iterator>
#include <utility>

#include "models/graph/onnx/rewrite.h"

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

constexpr std::pair<std::string_view, Rewrite> kRows[] = {
    {"Constant", Constant},
    {"ConstantOfShape", ConstantOfShape},
};

}  // namespace

Rewrite FindExpansion(std::string_view op) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                 [&](const auto& r) { return r.first == op; });
  return row != std::end(kRows) ? row->second : nullptr;
}

}  // namespace millrace::models::graph
