// Products with weights of few bits, which become constants of floats when the
// model is loaded. Weights [columns, blocks, bytes] are packed along the rows,
// and the last block of a column is padded.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/graph/onnx/rewrite.h"
#include "models/graph/ops/operands.h"

namespace millrace::models::graph {
namespace {

using Values = StatusOr<std::vector<ValueId>>;

// Weights [rows, columns], of which `size` rows of a column share a scale.
struct Layout {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t bits = 0;
  int64_t size = 0;    // rows of a block
  int64_t blocks = 0;  // of a column

  int64_t block_bytes() const { return size * bits / 8; }
  // Of the zero points of a column.
  int64_t zero_bytes() const { return (blocks * bits + 7) / 8; }
};

StatusOr<Layout> LayoutOf(const Attrs& attrs) {
  Layout layout{attrs.Int("K", 0), attrs.Int("N", 0), attrs.Int("bits", 4),
                attrs.Int("block_size", 0)};
  if (layout.bits != 2 && layout.bits != 4 && layout.bits != 8) {
    return Unimplemented("its weights have " + std::to_string(layout.bits) +
                         " bits");
  }
  if (layout.size < 16 || layout.size > 256 ||
      (layout.size & (layout.size - 1)) != 0) {
    return Unimplemented("its blocks have " + std::to_string(layout.size) +
                         " rows instead of 16, 32, 64, 128 or 256");
  }
  const int64_t dims[] = {layout.rows, layout.columns};
  RETURN_IF_ERROR(Shape::Checked(dims).status());
  if (layout.rows == 0 || layout.columns == 0) {
    return InvalidArgument("K and N must be positive");
  }
  layout.blocks = (layout.rows - 1) / layout.size + 1;
  return layout;
}

// The operand's numbers, of which there are as many as the layout asks for.
StatusOr<Tensor> Constant(NodeWriter& node, size_t i, std::string_view what,
                          int64_t each, const Layout& layout) {
  const Tensor* constant = node.ConstantOf(node.in(i));
  if (constant == nullptr) {
    return Unimplemented("its " + std::string(what) + " are not constant");
  }
  const int64_t count = constant->num_elements();
  if (count % layout.columns != 0 || count / layout.columns != each) {
    return InvalidArgument("its " + std::string(what) + " are " +
                           constant->shape().ToString() + ", but " +
                           std::to_string(layout.columns) + " columns of " +
                           std::to_string(each) + " are needed");
  }
  return constant->Aligned();
}

// The i-th of the numbers that stand one behind the other, lowest bits first.
int UnpackedAt(const uint8_t* packed, int64_t i, int64_t bits) {
  const int64_t bit = i * bits;
  return packed[bit / 8] >> (bit % 8) & ((1 << bits) - 1);
}

// Zero points of all blocks, [columns, blocks].
template <typename T>
StatusOr<std::vector<float>> Zeros(NodeWriter& node, const Layout& layout) {
  std::vector<float> zeros(static_cast<size_t>(layout.columns * layout.blocks),
                           static_cast<float>(int64_t{1} << (layout.bits - 1)));
  const Tensor* given = node.ConstantOf(node.in(3));
  if (node.in(3) == kNoValue) return zeros;
  const bool packed = given != nullptr && given->dtype() == DType::kU8;
  ASSIGN_OR_RETURN(
      const Tensor tensor,
      Constant(node, 3, "zero points",
               packed ? layout.zero_bytes() : layout.blocks, layout));
  if (!packed && tensor.dtype() != node.ConstantOf(node.in(2))->dtype()) {
    return InvalidArgument("its zero points are neither bytes nor as scales");
  }
  for (int64_t n = 0, at = 0; n < layout.columns; ++n) {
    for (int64_t b = 0; b < layout.blocks; ++b, ++at) {
      zeros[static_cast<size_t>(at)] =
          packed ? static_cast<float>(UnpackedAt(
                       tensor.data<uint8_t>() + n * layout.zero_bytes(), b,
                       layout.bits))
                 : static_cast<float>(tensor.data<T>()[at]);
    }
  }
  return zeros;
}

// Weights [rows, columns]. Columns are taken by a few, so that what is written
// is a cache line.
template <typename T>
StatusOr<Tensor> Weights(NodeWriter& node, const Layout& layout) {
  ASSIGN_OR_RETURN(const Tensor packed,
                   Constant(node, 1, "weights",
                            layout.blocks * layout.block_bytes(), layout));
  ASSIGN_OR_RETURN(const Tensor scales,
                   Constant(node, 2, "scales", layout.blocks, layout));
  ASSIGN_OR_RETURN(const std::vector<float> zeros, Zeros<T>(node, layout));
  Tensor weights =
      Tensor::Make(scales.dtype(), Shape{layout.rows, layout.columns});
  constexpr int64_t kColumns = 16;
  for (int64_t first = 0; first < layout.columns; first += kColumns) {
    const int64_t last = std::min(first + kColumns, layout.columns);
    for (int64_t k = 0; k < layout.rows; ++k) {
      T* row = weights.data<T>() + k * layout.columns;
      for (int64_t n = first; n < last; ++n) {
        const int64_t at = n * layout.blocks + k / layout.size;
        const uint8_t* block =
            packed.data<uint8_t>() + at * layout.block_bytes();
        const auto level =
            static_cast<float>(UnpackedAt(block, k % layout.size, layout.bits));
        row[n] = static_cast<T>((level - zeros[static_cast<size_t>(at)]) *
                                static_cast<float>(scales.data<T>()[at]));
      }
    }
  }
  return weights;
}

// Operands: x, weights, their scales and zero points, the order of their rows,
// bias.
Values MatMulNBits(NodeWriter& node) {
  if (node.in(4) != kNoValue) return Unimplemented("its rows are in an order");
  if (node.attrs.Int("weight_prepacked", 0) != 0) {
    return Unimplemented("its weights are laid out for one device");
  }
  ASSIGN_OR_RETURN(const Layout layout, LayoutOf(node.attrs));
  const Tensor* packed = node.ConstantOf(node.in(1));
  const Tensor* scales = node.ConstantOf(node.in(2));
  if (packed == nullptr || scales == nullptr) {
    return Unimplemented("its weights are not constant");
  }
  if (packed->dtype() != DType::kU8 || !IsFloat(scales->dtype())) {
    return InvalidArgument("its weights are not bytes with scales of floats");
  }
  RETURN_IF_ERROR(
      node.charge(layout.rows * layout.columns * DTypeBytes(scales->dtype())));
  ASSIGN_OR_RETURN(Tensor weights,
                   DispatchFloat(scales->dtype(), [&]<typename T>() {
                     return Weights<T>(node, layout);
                   }));
  ValueId y =
      node.Emit("MatMul", {node.in(0), node.Constant(std::move(weights))});
  if (node.in(5) != kNoValue) y = node.Emit("Add", {y, node.in(5)});
  return std::vector<ValueId>{y};
}

constexpr RewriteRow kRows[] = {{"MatMulNBits", MatMulNBits}};

}  // namespace

Rewrite FindMicrosoftBlocks(std::string_view op) { return FindRow(kRows, op); }

}  // namespace millrace::models::graph
