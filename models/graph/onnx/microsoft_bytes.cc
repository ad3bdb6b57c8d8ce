// Quantised operators of ONNX Runtime's own domain: what ONNX has, between
// DequantizeLinear and QuantizeLinear, which passes join again where there are
// kernels for bytes.
#include <utility>

#include "models/graph/onnx/byte_product.h"
#include "models/graph/onnx/rewrite.h"

namespace millrace::models::graph {
namespace {

using Values = StatusOr<std::vector<ValueId>>;

// x, its scale and zero point stand at i, i + 1 and i + 2.
ValueId Dequantised(NodeWriter& node, size_t i, Attrs attrs = {}) {
  std::vector<ValueId> operands = {node.in(i), node.in(i + 1)};
  if (node.in(i + 2) != kNoValue) operands.push_back(node.in(i + 2));
  return node.Emit("DequantizeLinear", std::move(operands), std::move(attrs));
}

// Scale and zero point of the result stand at i and i + 1. Without one, the
// result is of the type of `like`.
Values Quantised(NodeWriter& node, ValueId y, size_t i, ValueId like) {
  ValueId zero = node.in(i + 1);
  if (zero == kNoValue) zero = node.Emit("CastLike", {node.Int(0), like});
  return std::vector<ValueId>{
      node.Emit("QuantizeLinear", {y, node.in(i), zero})};
}

std::string WithoutPrefix(const NodeWriter& node) {
  return node.op.substr(std::string_view("QLinear").size());
}

Values Binary(NodeWriter& node) {
  const ValueId a = Dequantised(node, 0);
  const ValueId b = Dequantised(node, 3);
  return Quantised(node, node.Emit(WithoutPrefix(node), {a, b}), 6, node.in(0));
}

// Attributes that have ONNX's meaning go along.
Values Unary(NodeWriter& node) {
  if (node.attrs.Int("channels_last", 0) != 0) {
    return Unimplemented("its channels come last");
  }
  Attrs attrs = node.attrs;
  for (const char* name : {"channels_last", "opset"}) attrs.Erase(name);
  const ValueId y =
      node.Emit(WithoutPrefix(node), {Dequantised(node, 0)}, std::move(attrs));
  return Quantised(node, y, 3, node.in(0));
}

// Before 13 the operand was seen as a matrix, cut before `axis`.
Values Softmax(NodeWriter& node) {
  const int64_t axis = node.attrs.Int("axis", -1);
  const int rank = node.rank_of(node.in(0));
  if (node.attrs.Int("opset", 13) >= 13 || axis == -1 ||
      (rank > 0 && axis == rank - 1)) {
    return Unary(node);
  }
  const ValueId x = Dequantised(node, 0);
  const ValueId matrix = node.Emit("Flatten", {x}, {{"axis", axis}});
  const ValueId rows = node.Emit("Softmax", {matrix});
  const ValueId y =
      node.Emit("Reshape", {rows, node.Emit("Shape", {node.in(0)})});
  return Quantised(node, y, 3, node.in(0));
}

// Scale and zero point of the result, then those of each part behind it.
Values Concat(NodeWriter& node) {
  std::vector<ValueId> parts;
  for (size_t i = 2; i < node.inputs.size(); i += 3) {
    parts.push_back(Dequantised(node, i));
  }
  const ValueId y = node.Emit("Concat", std::move(parts), node.attrs);
  return Quantised(node, y, 0, node.in(2));
}

// Its bias is integers on the scale of the product, alpha included.
Values Gemm(NodeWriter& node) {
  const bool turned = node.attrs.Int("transB", 0) != 0;
  std::vector<ValueId> operands = {
      Dequantised(node, 0),
      Dequantised(node, 3, {{"axis", int64_t{turned ? 0 : 1}}})};
  if (node.in(6) != kNoValue) {
    const ValueId scale = node.Emit("Mul", {node.in(1), node.in(4)});
    const ValueId bias = node.Emit("CastLike", {node.in(6), scale});
    operands.push_back(node.Emit("Mul", {bias, scale}));
  }
  Attrs attrs = node.attrs;
  attrs.Set("beta", attrs.Float("alpha", 1));
  const ValueId y = node.Emit("Gemm", std::move(operands), std::move(attrs));
  if (node.in(7) == kNoValue) return std::vector<ValueId>{y};
  return Quantised(node, y, 7, node.in(0));
}

Values MatMulIntegerToFloat(NodeWriter& node) {
  return std::vector<ValueId>{
      ByteProduct(node, {node.in(0), node.in(2), node.in(4)},
                  {node.in(1), node.in(3), node.in(5)}, node.in(6))};
}

Values DynamicQuantizeMatMul(NodeWriter& node) {
  const auto bytes =
      node.EmitAll("DynamicQuantizeLinear", {node.in(0)}, {true, true, true});
  return std::vector<ValueId>{ByteProduct(node, {bytes[0], bytes[1], bytes[2]},
                                          {node.in(1), node.in(2), node.in(3)},
                                          node.in(4))};
}

// Weights [directions, inputs, 4 * hidden] with scale and zero point for each
// direction, or each column of it, as those of LSTM.
ValueId LstmWeights(NodeWriter& node, size_t i, size_t scale_at) {
  const ValueId scale = node.in(scale_at);
  const bool columns = node.rank_of(scale) == 2;
  const auto spread = [&](ValueId list) {
    return node.Emit("Unsqueeze",
                     {list, columns ? node.Ints({1}) : node.Ints({1, 2})});
  };
  const auto floats = [&](ValueId x) {
    return node.Emit("CastLike", {x, scale});
  };
  ValueId w = floats(node.in(i));
  if (const ValueId zero = node.in(scale_at + 1); zero != kNoValue) {
    w = node.Emit("Sub", {w, spread(floats(zero))});
  }
  return node.Emit("Transpose", {node.Emit("Mul", {w, spread(scale)})},
                   {{"perm", std::vector<int64_t>{0, 2, 1}}});
}

// ONNX Runtime rounds what is multiplied with the weights to bytes; here it
// stays as it is.
Values DynamicQuantizeLstm(NodeWriter& node) {
  std::vector<ValueId> operands = node.inputs;
  operands.resize(8, kNoValue);
  operands[1] = LstmWeights(node, 1, 8);
  operands[2] = LstmWeights(node, 2, 10);
  while (!operands.empty() && operands.back() == kNoValue) operands.pop_back();
  return node.EmitAll("LSTM", std::move(operands), node.wanted, node.attrs);
}

constexpr RewriteRow kRows[] = {
    {"DynamicQuantizeLSTM", DynamicQuantizeLstm},
    {"DynamicQuantizeMatMul", DynamicQuantizeMatMul},
    {"MatMulIntegerToFloat", MatMulIntegerToFloat},
    {"QGemm", Gemm},
    {"QLinearAdd", Binary},
    {"QLinearAveragePool", Unary},
    {"QLinearConcat", Concat},
    {"QLinearGlobalAveragePool", Unary},
    {"QLinearLeakyRelu", Unary},
    {"QLinearMul", Binary},
    {"QLinearSigmoid", Unary},
    {"QLinearSoftmax", Softmax},
};

}  // namespace

Rewrite FindMicrosoftBytes(std::string_view op) { return FindRow(kRows, op); }

}  // namespace millrace::models::graph
