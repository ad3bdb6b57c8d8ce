// What has been seen so far along an axis: CumMax and CumMin, with the place
// where the latest of equal extremes was, and CumLogSumExp. ONNX has none.
//
//   x     [...]
//   axis  {axis}
//   out   as x; places INT64, as x
//
// NaN wins and stays, as in PyTorch.
#include <cmath>

#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"

namespace millrace::models::graph {
namespace {

StatusOr<int> AxisOf(const Call& call) {
  const int64_t rank = call.arg(0).shape.rank();
  const int64_t axis = call.attrs().Int("axis", 0);
  if (axis < -rank || axis >= rank) {
    return InvalidArgument("axis " + std::to_string(axis) + " of a tensor of " +
                           std::to_string(rank) + " axes");
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Types InferExtreme(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 1, 1));
  RETURN_IF_ERROR(AxisOf(call).status());
  const Arg& x = call.arg(0);
  if (x.dtype == DType::kBool) {
    return InvalidArgument("the operand is BOOL; numbers are needed");
  }
  return Outputs(call, {{x.dtype, x.shape}, {DType::kI64, x.shape}});
}

Types InferSum(const Call& call) {
  RETURN_IF_ERROR(OneFloat(call));
  RETURN_IF_ERROR(AxisOf(call).status());
  return Outputs(call, {{call.arg(0).dtype, call.arg(0).shape}});
}

// Calls lane(begin, step, size) for each run along the axis.
template <typename Body>
Status ForLanes(const Call& call, const Team& team, Body&& lane) {
  ASSIGN_OR_RETURN(const int axis, AxisOf(call));
  const Shape& x = call.arg(0).shape;
  const int64_t step = x.Product(axis + 1, x.rank());
  const int64_t size = x[axis];
  const auto [begin, end] = team.Share(x.Product(0, axis) * step);
  for (int64_t i = begin; i < end; ++i) {
    lane(i / step * size * step + i % step, step, size);
  }
  return OkStatus();
}

template <bool kMax>
Status RunExtreme(const Call& call, std::span<const Result> results,
                  const Team& team) {
  int64_t* places = results.size() > 1 ? results[1].data<int64_t>() : nullptr;
  return Dispatch(call.arg(0).dtype, [&]<typename T>() {
    return ForLanes(call, team, [&](int64_t begin, int64_t step, int64_t size) {
      const T* x = call.arg(0).data<T>() + begin;
      T* y = results[0].data<T>() + begin;
      int64_t best = 0;
      for (int64_t i = 0; i < size; ++i) {
        const auto now = static_cast<MathType<T>>(x[i * step]);
        const auto seen = static_cast<MathType<T>>(x[best * step]);
        const bool newer = kMax ? now >= seen : now <= seen;
        if (now != now || (seen == seen && newer)) best = i;
        y[i * step] = x[best * step];
        if (places != nullptr) places[begin + i * step] = best;
      }
    });
  });
}

// log(eᵃ + eᵇ) = max + log(1 + e^(min - max))
Status RunLogSumExp(const Call& call, std::span<const Result> results,
                    const Team& team) {
  return DispatchFloat(call.arg(0).dtype, [&]<typename T>() {
    return ForLanes(call, team, [&](int64_t begin, int64_t step, int64_t size) {
      const T* x = call.arg(0).data<T>() + begin;
      T* y = results[0].data<T>() + begin;
      double sum = -std::numeric_limits<double>::infinity();
      for (int64_t i = 0; i < size; ++i) {
        const double v = MathType<T>(x[i * step]);
        const double most = std::max(sum, v);
        const double least = std::min(sum, v);
        sum = v != v || sum != sum ? v + sum
              : std::isinf(most)   ? most
                                   : most + std::log1p(std::exp(least - most));
        y[i * step] = static_cast<T>(static_cast<MathType<T>>(sum));
      }
    });
  });
}

constexpr OpDef kOps[] = {
    {"CumMax", InferExtreme, RunExtreme<true>, Work::kSplits},
    {"CumMin", InferExtreme, RunExtreme<false>, Work::kSplits},
    {"CumLogSumExp", InferSum, RunLogSumExp, Work::kSplits},
};

}  // namespace

std::span<const OpDef> RunningOps() { return kOps; }

}  // namespace millrace::models::graph
