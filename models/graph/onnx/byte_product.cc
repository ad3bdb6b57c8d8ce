#include "models/graph/onnx/byte_product.h"

#include <utility>

namespace millrace::models::graph {

ValueId ByteProduct(NodeWriter& node, const QuantisedMatrix& a,
                    const QuantisedMatrix& b, ValueId bias) {
  std::vector<ValueId> operands = {a.x, b.x, a.zero, b.zero};
  while (!operands.empty() && operands.back() == kNoValue) operands.pop_back();
  const ValueId sums = node.Emit("MatMulInteger", std::move(operands));
  const ValueId scale = node.Emit("Mul", {a.scale, b.scale});
  const ValueId floats = node.Emit("Cast", {sums}, {{"to", int64_t{1}}});
  const ValueId y = node.Emit("Mul", {floats, scale});
  return bias == kNoValue ? y : node.Emit("Add", {y, bias});
}

}  // namespace millrace::models::graph
