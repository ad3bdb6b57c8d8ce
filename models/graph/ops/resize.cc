// Resize and the older Upsample: one axis after the other, in f32 (integers
// and doubles in f64). Integers are cut off towards zero.
#include "models/graph/ops/resize.h"

#include <algorithm>
#include <limits>

#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"

namespace millrace::models::graph {
namespace {

Types Infer(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 1, 4));
  if (call.arg(0).dtype == DType::kBool &&
      call.attrs().Text("mode", "nearest") != "nearest") {
    return InvalidArgument("BOOL has no values in between");
  }
  ASSIGN_OR_RETURN(const ResizePlan plan, PlanResize(call));
  return Outputs(call, {{call.arg(0).dtype, plan.out}});
}

template <typename T, typename M>
T FromMath(M value) {
  if constexpr (std::is_integral_v<T>) {
    constexpr auto kLow = static_cast<M>(std::numeric_limits<T>::min());
    constexpr auto kHigh = static_cast<M>(std::numeric_limits<T>::max());
    if (!(value > kLow)) return std::numeric_limits<T>::min();
    return value < kHigh ? static_cast<T>(value)
                         : std::numeric_limits<T>::max();
  } else {
    return static_cast<T>(value);
  }
}

// [outer, in, inner] becomes [outer, out, inner].
template <typename M>
std::vector<M> Along(const ResizeAxis& axis, const std::vector<M>& x,
                     int64_t outer, int64_t inner, M beyond) {
  std::vector<M> y(static_cast<size_t>(outer * axis.out * inner));
  for (int64_t i = 0; i < outer; ++i) {
    for (int64_t o = 0; o < axis.out; ++o) {
      M* to = y.data() + (i * axis.out + o) * inner;
      if (axis.outside[static_cast<size_t>(o)]) {
        std::fill_n(to, inner, beyond);
        continue;
      }
      for (int64_t t = 0; t < axis.taps; ++t) {
        const auto at = static_cast<size_t>(o * axis.taps + t);
        const auto w = static_cast<M>(axis.weight[at]);
        if (w == 0) continue;
        const M* from = x.data() + (i * axis.in + axis.index[at]) * inner;
        for (int64_t j = 0; j < inner; ++j) to[j] += w * from[j];
      }
    }
  }
  return y;
}

Status RunLinear(const Call& call, const std::vector<ResizeAxis>& axes,
                 const Result& result, const Team& team) {
  const Shape& in = call.arg(0).shape;
  const int first = axes.front().axis;
  const int64_t in_slab = in.Product(first, in.rank());
  const int64_t out_slab = result.shape.Product(first, in.rank());
  const double beyond = call.attrs().Float("extrapolation_value", 0);
  const auto [begin, end] = team.Share(in.Product(0, first));
  Dispatch(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    using M = std::conditional_t<std::is_same_v<T, float> || kIsHalf<T>, float,
                                 double>;
    for (int64_t slab = b; slab < e; ++slab) {
      const T* x = call.arg(0).data<T>() + slab * in_slab;
      std::vector<M> values(x, x + in_slab);
      // Innermost first: rows are cheapest while there are few of them.
      int64_t inner = 1;
      int next = in.rank() - 1;
      for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
        for (; next > axis->axis; --next) inner *= in[next];
        values = Along<M>(*axis, values, in.Product(first, axis->axis), inner,
                          static_cast<M>(beyond));
        inner *= axis->out;
        --next;
      }
      std::transform(values.begin(), values.end(),
                     result.data<T>() + slab * out_slab,
                     [](M v) { return FromMath<T>(v); });
    }
  });
  return OkStatus();
}

Status RunNearest(const Call& call, const std::vector<ResizeAxis>& axes,
                  const Result& result, const Team& team) {
  const Shape& in = call.arg(0).shape;
  const Shape& out = result.shape;
  const Shape strides = in.Strides();
  // Of each dimension, the offsets of its elements in the operand.
  std::vector<std::vector<int64_t>> offsets;
  std::vector<std::vector<bool>> outside;
  for (int d = 0; d < in.rank(); ++d) {
    auto& list = offsets.emplace_back(static_cast<size_t>(out[d]));
    outside.emplace_back(static_cast<size_t>(out[d]));
    for (size_t o = 0; o < list.size(); ++o) {
      list[o] = static_cast<int64_t>(o) * strides[d];
    }
  }
  for (const ResizeAxis& axis : axes) {
    const auto at = static_cast<size_t>(axis.axis);
    for (size_t o = 0; o < offsets[at].size(); ++o) {
      offsets[at][o] = axis.index[o] * strides[axis.axis];
    }
    outside[at] = axis.outside;
  }
  const double beyond = call.attrs().Float("extrapolation_value", 0);
  const int last = in.rank() - 1;
  const int64_t length = last >= 0 ? out[last] : 1;
  if (result.num_elements() == 0) return OkStatus();
  const auto [begin, end] = team.Share(result.num_elements() / length);
  Dispatch(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    const auto fill = FromMath<T>(
        static_cast<std::conditional_t<kIsHalf<T>, float, double>>(beyond));
    for (int64_t row = b; row < e; ++row) {
      int64_t at = 0;
      int64_t rest = row;
      bool beside = false;
      for (int d = last - 1; d >= 0; --d) {
        const auto o = static_cast<size_t>(rest % out[d]);
        rest /= out[d];
        at += offsets[static_cast<size_t>(d)][o];
        beside = beside || outside[static_cast<size_t>(d)][o];
      }
      const T* x = call.arg(0).data<T>() + at;
      T* y = result.data<T>() + row * length;
      for (int64_t i = 0; i < length; ++i) {
        const auto d = static_cast<size_t>(std::max(last, 0));
        const auto o = static_cast<size_t>(i);
        if (last < 0) {
          y[i] = x[0];
        } else {
          y[i] = beside || outside[d][o] ? fill : x[offsets[d][o]];
        }
      }
    }
  });
  return OkStatus();
}

Status Run(const Call& call, std::span<const Result> results,
           const Team& team) {
  ASSIGN_OR_RETURN(const ResizePlan plan, PlanResize(call));
  if (results[0].num_elements() == 0) return OkStatus();
  ASSIGN_OR_RETURN(const std::vector<ResizeAxis> axes, ResizeAxes(call, plan));
  if (axes.empty() || call.attrs().Text("mode", "nearest") == "nearest") {
    return RunNearest(call, axes, results[0], team);
  }
  return RunLinear(call, axes, results[0], team);
}

constexpr OpDef kOps[] = {
    {"Resize", Infer, Run, Work::kSplits, {.layout = LayoutRule::kResize}},
    // Operands x and scales; coordinates are asymmetric, nearest is floor.
    {"Upsample", Infer, Run, Work::kSplits},
};

}  // namespace

std::span<const OpDef> ResizeOps() { return kOps; }

}  // namespace millrace::models::graph
