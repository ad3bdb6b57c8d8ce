#include "models/graph/quantize/tables.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "models/cpu/pool_rows.h"
#include "models/graph/op.h"
#include "models/tensor/float16.h"

namespace millrace::models::graph {
namespace {

// `to` holds zeros.
void RowInBytes(const float* x, int64_t size, std::byte* to) {
  float low = std::numeric_limits<float>::infinity();
  float high = -low;
  bool finite = true;
  for (int64_t i = 0; i < size; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
    finite = finite && std::isfinite(x[i]);
  }
  float scale = std::numeric_limits<float>::quiet_NaN();
  float bias = 0;
  if (finite) {
    bias = size > 0 ? low : 0;
    // Both halves of a range are finite where the range may not be.
    scale = size > 0 ? high / 255 - low / 255 : 0;
    for (int64_t i = 0; i < size && scale > 0; ++i) {
      const double q = (double{x[i]} - double{bias}) / double{scale};
      to[i] = static_cast<std::byte>(
          static_cast<uint8_t>(std::clamp(std::nearbyint(q), 0.0, 255.0)));
    }
  }
  std::memcpy(to + size, &scale, sizeof scale);
  std::memcpy(to + size + sizeof scale, &bias, sizeof bias);
}

}  // namespace

bool HasFloatTable(const Graph& graph, const Node& node) {
  if (!node.Is("EmbeddingBag")) return false;
  const Tensor* table = graph.value(node.inputs[0]).constant.get();
  return table != nullptr && table->dtype() == DType::kF32 &&
         table->shape().rank() == 2;
}

Tensor RowsInBytes(const Tensor& table) {
  const int64_t rows = table.shape()[0];
  const int64_t size = table.shape()[1];
  const int64_t row_bytes = size + kInt8RowExtra;
  Tensor bytes = Tensor::Make(DType::kU8, {rows, row_bytes});
  for (int64_t row = 0; row < rows; ++row) {
    RowInBytes(table.data<float>() + row * size, size,
               bytes.bytes() + row * row_bytes);
  }
  return bytes;
}

Tensor RowsInHalves(const Tensor& table) {
  Tensor halves = Tensor::Make(DType::kF16, table.shape());
  const float* from = table.data<float>();
  auto* to = halves.data<uint16_t>();
  for (int64_t i = 0; i < table.num_elements(); ++i) {
    to[i] = FloatToHalf(from[i]);
  }
  return halves;
}

void UseTable(Graph& graph, Node& node, Tensor table) {
  const bool in_bytes = table.dtype() == DType::kU8;
  node.attrs.Set(in_bytes ? "rowwise" : "wide", int64_t{1});
  node.inputs[0] =
      graph.AddConstant(graph.value(node.inputs[0]).name, std::move(table));
}

}  // namespace millrace::models::graph
