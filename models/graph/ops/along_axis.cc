// Operators that run along one axis: ArgMax, ArgMin, CumSum, CumProd, TopK,
// ReverseSequence.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "models/graph/ops/checks.h"
#include "models/graph/ops/dispatch.h"
#include "models/graph/ops/op_groups.h"

namespace millrace::models::graph {
namespace {

// A tensor seen as [outer, size, inner].
struct Lanes {
  Lanes(const Shape& shape, int axis)
      : outer(shape.Product(0, axis)),
        size(shape[axis]),
        inner(shape.Product(axis + 1, shape.rank())) {}
  int64_t count() const { return outer * inner; }
  // Where the lane begins; its elements are `inner` apart.
  int64_t Begin(int64_t lane) const {
    return lane / inner * size * inner + lane % inner;
  }
  int64_t outer, size, inner;
};

StatusOr<OutTypes> InferArg(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 1));
  Shape shape = call.arg(0).shape;
  ASSIGN_OR_RETURN(const int axis,
                   NormalAxis(call.attrs().Int("axis", 0), shape.rank()));
  if (shape[axis] == 0) return InvalidArgument("there is nothing to compare");
  if (call.attrs().Int("keepdims", 1) != 0) {
    shape[axis] = 1;
  } else {
    shape.Erase(axis);
  }
  return OutTypes{{DType::kI64, shape}};
}

template <bool kMax>
Status RunArg(const Call& call, std::span<const Result> results,
              const Team& team) {
  const Shape& x = call.arg(0).shape;
  ASSIGN_OR_RETURN(const int axis,
                   NormalAxis(call.attrs().Int("axis", 0), x.rank()));
  const bool last = call.attrs().Int("select_last_index", 0) != 0;
  const Lanes lanes(x, axis);
  const auto [begin, end] = team.Share(lanes.count());
  Dispatch(call.arg(0).dtype, [&]<typename T>() {
    for (int64_t lane = begin; lane < end; ++lane) {
      const T* run = call.arg(0).data<T>() + lanes.Begin(lane);
      int64_t best = 0;
      auto value = static_cast<MathType<T>>(run[0]);
      for (int64_t i = 1; i < lanes.size; ++i) {
        const auto other = static_cast<MathType<T>>(run[i * lanes.inner]);
        const bool better = kMax ? other > value : other < value;
        if (better || (last && other == value)) {
          best = i;
          value = other;
        }
      }
      results[0].data<int64_t>()[lane] = best;
    }
  });
  return OkStatus();
}

StatusOr<OutTypes> InferCumulative(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 2, 2));
  if (call.arg(0).dtype == DType::kBool) return WrongType(call.arg(0));
  if (call.arg(1).num_elements() != 1 || call.arg(1).shape.rank() > 1 ||
      (call.arg(1).dtype != DType::kI64 && call.arg(1).dtype != DType::kI32)) {
    return WrongType(call.arg(1));
  }
  return OutTypes{{call.arg(0).dtype, call.arg(0).shape}};
}

template <bool kProduct>
Status RunCumulative(const Call& call, std::span<const Result> results,
                     const Team& team) {
  const Shape& x = call.arg(0).shape;
  ASSIGN_OR_RETURN(const int64_t given, IntOf(call.arg(1), "axis", 0));
  ASSIGN_OR_RETURN(const int axis, NormalAxis(given, x.rank()));
  const bool exclusive = call.attrs().Int("exclusive", 0) != 0;
  const bool reverse = call.attrs().Int("reverse", 0) != 0;
  const Lanes lanes(x, axis);
  const auto [begin, end] = team.Share(lanes.count());
  Dispatch(call.arg(0).dtype, [&]<typename T>() {
    using Sum =
        std::conditional_t<std::is_integral_v<T>, uint64_t, MathType<T>>;
    for (int64_t lane = begin; lane < end; ++lane) {
      const T* from = call.arg(0).data<T>() + lanes.Begin(lane);
      T* to = results[0].data<T>() + lanes.Begin(lane);
      Sum sum = kProduct ? 1 : 0;
      for (int64_t k = 0; k < lanes.size; ++k) {
        const int64_t i = (reverse ? lanes.size - 1 - k : k) * lanes.inner;
        const auto value = static_cast<Sum>(from[i]);
        const Sum next = kProduct ? sum * value : sum + value;
        to[i] = static_cast<T>(exclusive ? sum : next);
        sum = next;
      }
    }
  });
  return OkStatus();
}

StatusOr<OutTypes> InferTopK(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 2, 2));
  Shape shape = call.arg(0).shape;
  ASSIGN_OR_RETURN(const int axis,
                   NormalAxis(call.attrs().Int("axis", -1), shape.rank()));
  ASSIGN_OR_RETURN(const int64_t k, IntOf(call.arg(1), "k", 0));
  if (k < 0 || k > shape[axis]) {
    return InvalidArgument("k is " + std::to_string(k) + " of " +
                           std::to_string(shape[axis]) + " elements");
  }
  shape[axis] = k;
  return OutTypes{{call.arg(0).dtype, shape}, {DType::kI64, shape}};
}

// Of equal ones the first comes first; NaN counts as the greatest.
Status RunTopK(const Call& call, std::span<const Result> results,
               const Team& team) {
  const Shape& x = call.arg(0).shape;
  ASSIGN_OR_RETURN(const int axis,
                   NormalAxis(call.attrs().Int("axis", -1), x.rank()));
  const bool largest = call.attrs().Int("largest", 1) != 0;
  const Lanes lanes(x, axis);
  const Lanes tops(results[0].shape, axis);
  const auto [begin, end] = team.Share(lanes.count());
  Dispatch(call.arg(0).dtype, [&]<typename T>() {
    std::vector<int64_t> order(static_cast<size_t>(lanes.size));
    for (int64_t lane = begin; lane < end; ++lane) {
      const T* run = call.arg(0).data<T>() + lanes.Begin(lane);
      const auto value = [&](int64_t i) {
        return static_cast<MathType<T>>(run[i * lanes.inner]);
      };
      const auto less = [&](auto a, auto b) {
        return a < b || (a == a && b != b);
      };
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + tops.size, order.end(),
                        [&](int64_t i, int64_t j) {
                          const auto a = value(i), b = value(j);
                          if (largest ? less(b, a) : less(a, b)) return true;
                          if (largest ? less(a, b) : less(b, a)) return false;
                          return i < j;
                        });
      const int64_t to = tops.Begin(lane);
      for (int64_t k = 0; k < tops.size; ++k) {
        const int64_t i = order[static_cast<size_t>(k)];
        results[0].data<T>()[to + k * tops.inner] = run[i * lanes.inner];
        results[1].data<int64_t>()[to + k * tops.inner] = i;
      }
    }
  });
  return OkStatus();
}

StatusOr<OutTypes> InferReverse(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 2, 2));
  const Shape& x = call.arg(0).shape;
  const int64_t batch = call.attrs().Int("batch_axis", 1);
  const int64_t time = call.attrs().Int("time_axis", 0);
  if (x.rank() < 2 || batch + time != 1 || batch < 0 || batch > 1) {
    return InvalidArgument("batch_axis and time_axis are 0 and 1");
  }
  const Arg& lengths = call.arg(1);
  if (lengths.dtype != DType::kI64 || lengths.shape.rank() != 1 ||
      lengths.num_elements() != x[static_cast<int>(batch)]) {
    return WrongType(lengths);
  }
  return OutTypes{{call.arg(0).dtype, x}};
}

Status RunReverse(const Call& call, std::span<const Result> results,
                  const Team&) {
  const Shape& x = call.arg(0).shape;
  const int64_t batch_axis = call.attrs().Int("batch_axis", 1);
  const int64_t times = x[static_cast<int>(1 - batch_axis)];
  const auto run = x.Product(2, x.rank()) * DTypeBytes(call.arg(0).dtype);
  for (int64_t i = 0; i < x[0] * x[1] && run > 0; ++i) {
    const int64_t batch = batch_axis == 0 ? i / x[1] : i % x[1];
    const int64_t time = batch_axis == 0 ? i % x[1] : i / x[1];
    const int64_t length = call.arg(1).data<int64_t>()[batch];
    if (length < 0 || length > times) {
      return InvalidArgument("a sequence of " + std::to_string(length) +
                             " in " + std::to_string(times));
    }
    const int64_t from = time < length ? length - 1 - time : time;
    const int64_t at =
        batch_axis == 0 ? batch * x[1] + from : from * x[1] + batch;
    std::memcpy(results[0].bytes + i * run, call.arg(0).bytes + at * run,
                static_cast<size_t>(run));
  }
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"ArgMax", InferArg, RunArg<true>, Work::kSplits},
    {"ArgMin", InferArg, RunArg<false>, Work::kSplits},
    {"CumProd", InferCumulative, RunCumulative<true>, Work::kSplits},
    {"CumSum", InferCumulative, RunCumulative<false>, Work::kSplits},
    {"ReverseSequence", InferReverse, RunReverse},
    {"TopK", InferTopK, RunTopK, Work::kSplits},
};

}  // namespace

std::span<const OpDef> AlongAxisOps() { return kOps; }

}  // namespace millrace::models::graph
