// QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear. Scales and zero
// points belong to the whole tensor (a scalar), to each index of an axis, or
// to each block of an axis.
#include "models/graph/ops/quantize.h"

#include <algorithm>

#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"
#include "models/graph/ops/row_rules.h"

namespace millrace::models::graph {

std::vector<int32_t> AsInts(const Arg& arg) {
  if (!arg.given) return {0};
  return Dispatch(arg.dtype, [&]<typename T>() {
    std::vector<int32_t> values;
    if constexpr (std::is_integral_v<T>) {
      for (int64_t i = 0; i < arg.num_elements(); ++i) {
        values.push_back(static_cast<int32_t>(arg.data<T>()[i]));
      }
    }
    return values;
  });
}

std::vector<float> AsFloats(const Arg& arg) {
  if (!arg.given) return {1};
  return DispatchFloat(arg.dtype, [&]<typename T>() {
    const T* x = arg.data<T>();
    std::vector<float> values;
    for (int64_t i = 0; i < arg.num_elements(); ++i) {
      values.push_back(static_cast<float>(static_cast<MathType<T>>(x[i])));
    }
    return values;
  });
}

StatusOr<DType> DTypeOfOnnx(int64_t number) {
  switch (number) {
    case 1:
      return DType::kF32;
    case 2:
      return DType::kU8;
    case 3:
      return DType::kI8;
    case 4:
      return DType::kU16;
    case 5:
      return DType::kI16;
    case 10:
      return DType::kF16;
    case 11:
      return DType::kF64;
    case 16:
      return DType::kBF16;
    default:
      return Unimplemented("output_dtype " + std::to_string(number));
  }
}

namespace {

// Which scale an element has: x is [outer, size, inner], scales are [outer or
// 1, size / block, inner or 1].
struct Layout {
  int64_t size = 1;
  int64_t inner = 1;
  int64_t block = 1;
  int64_t blocks = 1;
  bool whole = false;    // one scale for all
  bool blocked = false;  // scales have outer and inner of their own

  int64_t ScaleOf(int64_t i) const {
    if (whole) return 0;
    const int64_t at = i / inner % size / block;
    if (!blocked) return at;
    return (i / inner / size * blocks + at) * inner + i % inner;
  }
};

StatusOr<Layout> LayoutOf(const Call& call) {
  const Shape& x = call.arg(0).shape;
  const Shape& scale = call.arg(1).shape;
  Layout layout;
  if (scale.rank() == 0 || (scale.num_elements() == 1 && scale.rank() <= 1)) {
    layout.whole = true;
    return layout;
  }
  ASSIGN_OR_RETURN(const int axis,
                   NormalAxis(call.attrs().Int("axis", 1), x.rank()));
  layout.size = x[axis];
  layout.inner = x.Product(axis + 1, x.rank());
  const int64_t block = call.attrs().Int("block_size", 0);
  Shape wanted = {x[axis]};
  if (block != 0) {
    if (block < 0 || block > Shape::kMaxElements) {
      return InvalidArgument("block_size is " + std::to_string(block));
    }
    layout.block = block;
    layout.blocks = (x[axis] + block - 1) / block;
    layout.blocked = true;
    wanted = x;
    wanted[axis] = layout.blocks;
  }
  if (!(scale == wanted)) {
    return InvalidArgument("scales of shape " + scale.ToString() +
                           " do not fit a tensor of shape " + x.ToString() +
                           " along axis " + std::to_string(axis));
  }
  return layout;
}

Status CheckZero(const Call& call) {
  const Arg& zero = call.arg(2);
  if (!zero.given || zero.num_elements() == call.arg(1).num_elements()) {
    return OkStatus();
  }
  return InvalidArgument("zero points of shape " + zero.shape.ToString() +
                         " do not match scales of shape " +
                         call.arg(1).shape.ToString());
}

Types InferQuantize(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 2, 3));
  const DType x = call.arg(0).dtype;
  if (!IsFloat(x) && x != DType::kI32) {
    return InvalidArgument("x is " + TypeText(x, call.arg(0).shape) +
                           "; floats or INT32 are quantised");
  }
  RETURN_IF_ERROR(FloatOperand(call, 1, "the scale"));
  RETURN_IF_ERROR(CheckZero(call));
  RETURN_IF_ERROR(LayoutOf(call).status());
  DType out = DType::kU8;
  if (call.arg(2).given) {
    out = call.arg(2).dtype;
  } else if (const int64_t n = call.attrs().Int("output_dtype", 0); n != 0) {
    ASSIGN_OR_RETURN(out, DTypeOfOnnx(n));
  }
  if (!IsQuantized(out)) {
    return Unimplemented("quantising to " + std::string(DTypeName(out)));
  }
  return Outputs(call, {{out, call.arg(0).shape}});
}

Status RunQuantize(const Call& call, std::span<const Result> results,
                   const Team& team) {
  ASSIGN_OR_RETURN(const Layout layout, LayoutOf(call));
  const std::vector<float> scales = AsFloats(call.arg(1));
  std::vector<int32_t> zeros = AsInts(call.arg(2));
  zeros.resize(scales.size());
  const auto [begin, end] = team.Share(results[0].num_elements(), 64);
  const auto each = [&, b = begin, e = end]<typename T>(const T* x) {
    DispatchQuantized(results[0].dtype, [&]<typename Q>() {
      Q* y = results[0].data<Q>();
      for (int64_t i = b; i < e; ++i) {
        const auto at = static_cast<size_t>(layout.ScaleOf(i));
        y[i] = Saturate<Q>(static_cast<float>(x[i]) / scales[at], zeros[at]);
      }
    });
  };
  if (call.arg(0).dtype == DType::kI32) {
    each(call.arg(0).data<int32_t>());
  } else {
    DispatchFloat(call.arg(0).dtype,
                  [&]<typename T>() { each(call.arg(0).data<T>()); });
  }
  return OkStatus();
}

Types InferDequantize(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 2, 3));
  RETURN_IF_ERROR(SameType(call, 2, "the zero point"));
  RETURN_IF_ERROR(FloatOperand(call, 1, "the scale"));
  RETURN_IF_ERROR(CheckZero(call));
  const DType x = call.arg(0).dtype;
  if (!IsQuantized(x) && x != DType::kI32) {
    return InvalidArgument("x is " + TypeText(x, call.arg(0).shape) +
                           "; integers of 8 or 16 bits or INT32 are needed");
  }
  RETURN_IF_ERROR(LayoutOf(call).status());
  DType out = call.arg(1).dtype;
  if (const int64_t n = call.attrs().Int("output_dtype", 0); n != 0) {
    ASSIGN_OR_RETURN(out, DTypeOfOnnx(n));
  }
  if (!IsFloat(out)) return InvalidArgument("output_dtype must be a float");
  return Outputs(call, {{out, call.arg(0).shape}});
}

Status RunDequantize(const Call& call, std::span<const Result> results,
                     const Team& team) {
  ASSIGN_OR_RETURN(const Layout layout, LayoutOf(call));
  const std::vector<float> scales = AsFloats(call.arg(1));
  std::vector<int32_t> zeros = AsInts(call.arg(2));
  zeros.resize(scales.size());
  const auto [begin, end] = team.Share(results[0].num_elements(), 64);
  Dispatch(call.arg(0).dtype, [&, b = begin, e = end]<typename Q>() {
    if constexpr (std::is_integral_v<Q> && sizeof(Q) <= 4) {
      DispatchFloat(results[0].dtype, [&]<typename T>() {
        const Q* x = call.arg(0).data<Q>();
        T* y = results[0].data<T>();
        for (int64_t i = b; i < e; ++i) {
          const auto at = static_cast<size_t>(layout.ScaleOf(i));
          // In 64 bits: INT32 has zero points, too.
          const int64_t centred = int64_t{x[i]} - zeros[at];
          y[i] = static_cast<T>(static_cast<float>(centred) * scales[at]);
        }
      });
    }
  });
  return OkStatus();
}

Types InferDynamic(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 1, 1));
  if (call.arg(0).dtype != DType::kF32) {
    return InvalidArgument("x must be FP32");
  }
  return Outputs(
      call,
      {{DType::kU8, call.arg(0).shape}, {DType::kF32, {}}, {DType::kU8, {}}});
}

// The range is that of x and 0; every member looks at all of x for it.
Status RunDynamic(const Call& call, std::span<const Result> results,
                  const Team& team) {
  const auto* x = call.arg(0).data<float>();
  const int64_t n = call.arg(0).num_elements();
  float low = 0;
  float high = 0;
  for (int64_t i = 0; i < n; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  const float scale = (high == low ? 1.0f : high - low) / 255.0f;
  const int32_t zero = Saturate<uint8_t>(0.0f - low / scale, 0);
  if (team.index == 0) {
    if (results.size() > 1) *results[1].data<float>() = scale;
    if (results.size() > 2) {
      *results[2].data<uint8_t>() = static_cast<uint8_t>(zero);
    }
  }
  const auto [begin, end] = team.Share(n, 64);
  for (int64_t i = begin; i < end; ++i) {
    results[0].data<uint8_t>()[i] = Saturate<uint8_t>(x[i] / scale, zero);
  }
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"QuantizeLinear",
     InferQuantize,
     RunQuantize,
     Work::kSplits,
     {.layout = LayoutRule::kOneScale, .keeps_rows = rows::OneScale}},
    {"DequantizeLinear",
     InferDequantize,
     RunDequantize,
     Work::kSplits,
     {.layout = LayoutRule::kOneScale, .keeps_rows = rows::OneScale}},
    {"DynamicQuantizeLinear", InferDynamic, RunDynamic, Work::kSplits},
};

}  // namespace

std::span<const OpDef> QuantizeOps() { return kOps; }

}  // namespace millrace::models::graph
