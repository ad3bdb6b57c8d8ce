#include "models/graph/passes/bytes.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace millrace::models::graph {
namespace {

// Sums of so many products of bytes fit in 32 bits.
constexpr int64_t kMostTerms = 65000;

// The constant scale and zero point of a node, if they are one each.
std::optional<ByteScale> ScaleOf(const Graph& graph, const Node& node,
                                 DType bytes) {
  const auto constant = [&](size_t i) -> const Tensor* {
    return i < node.inputs.size() && node.inputs[i] != kNoValue
               ? graph.value(node.inputs[i]).constant.get()
               : nullptr;
  };
  const Tensor* scale = constant(1);
  if (scale == nullptr || scale->dtype() != DType::kF32 ||
      scale->num_elements() != 1 || scale->shape().rank() > 1 ||
      node.attrs.Int("block_size", 0) != 0) {
    return std::nullopt;
  }
  ByteScale out{*scale->data<float>(), 0};
  if (node.inputs.size() > 2 && node.inputs[2] != kNoValue) {
    const Tensor* zero = constant(2);
    if (zero == nullptr || zero->dtype() != bytes) return std::nullopt;
    out.zero = bytes == DType::kU8 ? int32_t{*zero->data<uint8_t>()}
                                   : int32_t{*zero->data<int8_t>()};
  }
  // Also false for a NaN.
  if (!(out.scale > 0) || !(out.scale < 1e30f)) return std::nullopt;
  return out;
}

bool IsQuantize(const Node& node) { return node.Is("QuantizeLinear"); }
bool IsDequantize(const Node& node) { return node.Is("DequantizeLinear"); }

ValueId BytesOf(const Node& node) {
  return IsQuantize(node) ? node.outputs[0] : node.inputs[0];
}
ValueId FloatsOf(const Node& node) {
  return IsQuantize(node) ? node.inputs[0] : node.outputs[0];
}

std::optional<ByteScale> ScaleOfBytes(const Graph& graph, const Node& node,
                                      DType bytes) {
  if (!IsQuantize(node) && !IsDequantize(node)) return std::nullopt;
  const auto& type = graph.value(BytesOf(node)).type;
  const auto& floats = graph.value(FloatsOf(node)).type;
  if (!type || type->dtype != bytes || !floats ||
      floats->dtype != DType::kF32) {
    return std::nullopt;
  }
  return ScaleOf(graph, node, bytes);
}

}  // namespace

std::optional<ByteScale> ByteScaleOf(const Graph& graph, const Node& node) {
  return ScaleOfBytes(graph, node, DType::kU8);
}

std::optional<Dequantised> DequantisedOf(const Graph& graph, Editor& editor,
                                         ValueId id) {
  const Node* maker = editor.Maker(id);
  if (maker == nullptr || !IsDequantize(*maker)) return std::nullopt;
  const auto scale = ByteScaleOf(graph, *maker);
  if (!scale) return std::nullopt;
  return Dequantised{maker->inputs[0], *scale};
}

std::optional<Measured> MeasuredOf(const Graph& graph, Editor& editor,
                                   ValueId id) {
  const Node* maker = editor.Maker(id);
  if (maker == nullptr || !IsDequantize(*maker) || maker->inputs.size() < 3 ||
      maker->attrs.Int("block_size", 0) != 0) {
    return std::nullopt;
  }
  const Measured found{maker->inputs[0], maker->inputs[1], maker->inputs[2]};
  const auto is_one = [&](ValueId of, DType dtype) {
    return of != kNoValue && graph.value(of).constant == nullptr &&
           graph.value(of).type->dtype == dtype &&
           graph.value(of).type->shape.num_elements() == 1;
  };
  if (!is_one(found.scale, DType::kF32) || !is_one(found.zero, DType::kU8)) {
    return std::nullopt;
  }
  return found;
}

void UnsignBytes(Graph& graph) {
  // Values that may change: made by one QuantizeLinear, and so far read well.
  std::vector<bool> good(graph.values.size());
  for (const Node& node : graph.nodes) {
    if (IsQuantize(node) && ScaleOfBytes(graph, node, DType::kI8)) {
      good[static_cast<size_t>(node.outputs[0])] = true;
    }
  }
  for (const Node& node : graph.nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoValue) continue;
      if (i == 0 && IsDequantize(node) &&
          ScaleOfBytes(graph, node, DType::kI8)) {
        continue;
      }
      good[static_cast<size_t>(node.inputs[i])] = false;
    }
  }
  for (const Port& port : graph.outputs) {
    good[static_cast<size_t>(port.value)] = false;
  }
  Editor editor(graph);
  std::vector<ValueId> changed;
  for (Node& node : graph.nodes) {
    if (!IsQuantize(node) && !IsDequantize(node)) continue;
    const ValueId bytes = BytesOf(node);
    if (static_cast<size_t>(bytes) >= good.size() ||
        !good[static_cast<size_t>(bytes)]) {
      continue;
    }
    const ByteScale scale = *ScaleOfBytes(graph, node, DType::kI8);
    Tensor zero = Tensor::Make(DType::kU8, {});
    *zero.data<uint8_t>() = static_cast<uint8_t>(scale.zero + 128);
    const ValueId id = editor.AddConstant(node.name, std::move(zero));
    Attrs attrs = node.attrs;
    attrs.Erase("output_dtype");
    editor.Rewrite(node, *node.op, {node.inputs[0], node.inputs[1], id},
                   std::move(attrs));
    changed.push_back(bytes);
  }
  for (const ValueId id : changed) graph.value(id).type->dtype = DType::kU8;
}

namespace {

// Outputs and terms of each, or nothing where scales are not those of outputs.
struct Sizes {
  int64_t n = 0;
  int64_t k = 0;
};
std::optional<Sizes> SizesOf(const Integers& integers, int outputs_axis) {
  const Shape& shape = integers.values->shape();
  const int64_t n = shape[outputs_axis];
  const auto num_scales = static_cast<int64_t>(integers.scales.size());
  if (n == 0 || shape.num_elements() == 0) return std::nullopt;
  if (num_scales != 1 && (integers.axis != outputs_axis || num_scales != n)) {
    return std::nullopt;
  }
  const Sizes sizes{n, shape.num_elements() / n};
  if (sizes.k > kMostTerms) return std::nullopt;
  return sizes;
}

// body(output, term, value without zero point) for every element.
template <typename Body>
void Each(const Integers& integers, int outputs_axis, Body body) {
  const Shape& shape = integers.values->shape();
  const int64_t outputs = shape[outputs_axis];
  const int64_t inner = shape.Product(outputs_axis + 1, shape.rank());
  const int64_t outer = shape.Product(0, outputs_axis);
  const auto* bytes =
      reinterpret_cast<const uint8_t*>(integers.values->bytes());
  const bool has_sign = integers.values->dtype() == DType::kI8;
  for (int64_t row = 0; row < outer; ++row) {
    for (int64_t output = 0; output < outputs; ++output) {
      const int32_t zero =
          integers
              .zeros[integers.zeros.size() == 1 ? 0
                                                : static_cast<size_t>(output)];
      for (int64_t i = 0; i < inner; ++i) {
        const uint8_t byte = *bytes++;
        const int32_t value =
            has_sign ? int32_t{static_cast<int8_t>(byte)} : int32_t{byte};
        body(output, row * inner + i, value - zero);
      }
    }
  }
}

}  // namespace

std::optional<SignedWeight> SignedWeightOf(const Integers& integers,
                                           int outputs_axis) {
  if (!HasSignedWeight(integers, outputs_axis)) return std::nullopt;
  const Sizes sizes = *SizesOf(integers, outputs_axis);
  SignedWeight out{{}, {}, sizes.n, sizes.k};
  out.values.resize(static_cast<size_t>(sizes.n * sizes.k));
  Each(integers, outputs_axis,
       [&](int64_t output, int64_t term, int32_t value) {
         out.values[static_cast<size_t>(output * sizes.k + term)] =
             static_cast<int8_t>(value);
       });
  out.sums.reserve(static_cast<size_t>(sizes.n));
  for (int64_t n = 0; n < sizes.n; ++n) {
    const int8_t* of = out.values.data() + n * sizes.k;
    out.sums.push_back(std::accumulate(of, of + sizes.k, int32_t{0}));
  }
  return out;
}

bool HasSignedWeight(const Integers& integers, int outputs_axis) {
  return integers.fits_signed && SizesOf(integers, outputs_axis).has_value();
}

bool FitsSigned(const Integers& integers) {
  const bool has_sign = integers.values->dtype() == DType::kI8;
  const auto trivial = [&](int32_t zero) {
    return zero == (has_sign ? 0 : 128);
  };
  if (std::all_of(integers.zeros.begin(), integers.zeros.end(), trivial)) {
    return true;
  }
  bool fits = true;
  Each(integers, integers.zeros.size() == 1 ? 0 : integers.axis,
       [&](int64_t, int64_t, int32_t value) {
         fits = fits && value >= -128 && value <= 127;
       });
  return fits;
}

}  // namespace millrace::models::graph
