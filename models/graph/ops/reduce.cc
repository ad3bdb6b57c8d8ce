// Reductions over any axes. Floats are summed in f64, integers wrap around.
// Where the innermost dimension stays, whole rows are accumulated at once.
#include <cmath>
#include <limits>
#include <type_traits>

#include "models/graph/ops/checks.h"
#include "models/graph/ops/dispatch.h"
#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/row_rules.h"

namespace millrace::models::graph {
namespace {

struct Axes {
  std::vector<char> reduced;  // for each dimension
  Shape out;
};

StatusOr<Axes> ReducedAxes(const Call& call) {
  const Shape& x = call.arg(0).shape;
  std::vector<int64_t> given;
  if (call.arg(1).given) {
    ASSIGN_OR_RETURN(given, IntsOf(call.arg(1), "axes"));
  }
  const bool noop = call.attrs().Int("noop_with_empty_axes", 0) != 0;
  Axes axes;
  axes.reduced.assign(static_cast<size_t>(x.rank()), given.empty() && !noop);
  ASSIGN_OR_RETURN(const std::vector<int> normal, AxesOf(given, x.rank()));
  for (const int axis : normal) axes.reduced[static_cast<size_t>(axis)] = true;
  const bool keeps = call.attrs().Int("keepdims", 1) != 0;
  for (int i = 0; i < x.rank(); ++i) {
    const bool reduced = axes.reduced[static_cast<size_t>(i)];
    if (!reduced || keeps) axes.out.Append(reduced ? 1 : x[i]);
  }
  return axes;
}

template <bool kBools>
StatusOr<OutTypes> Infer(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 2));
  if (!kBools && call.arg(0).dtype == DType::kBool) {
    return WrongType(call.arg(0));
  }
  ASSIGN_OR_RETURN(const Axes axes, ReducedAxes(call));
  return OutTypes{{call.arg(0).dtype, axes.out}};
}

// What is accumulated: f64 for floats, u64 or i64 for integers.
template <typename T>
using Wide = std::conditional_t<
    kIsFloat<T>, double,
    std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;
template <typename A>
A Plus(A a, A b) {
  if constexpr (std::is_integral_v<A>) {
    return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}
template <typename A>
A Times(A a, A b) {
  if constexpr (std::is_integral_v<A>) {
    return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return a * b;
  }
}

// Each has Start(), Step(so far, element) and End(so far, number of elements).
template <typename A>
struct Sum {
  static A Start() { return 0; }
  static A Step(A sum, A x) { return Plus(sum, x); }
  static A End(A sum, int64_t) { return sum; }
};
template <typename A>
struct Mean : Sum<A> {
  static A End(A sum, int64_t count) {
    if constexpr (std::is_integral_v<A>) {
      return count == 0 ? 0 : static_cast<A>(sum / static_cast<A>(count));
    } else {
      return sum / static_cast<A>(count);
    }
  }
};
template <typename A>
struct Product : Sum<A> {
  static A Start() { return 1; }
  static A Step(A product, A x) { return Times(product, x); }
};
template <typename A>
struct L1 : Sum<A> {
  static A Step(A sum, A x) {
    return Plus(sum, x < 0 ? Times<A>(x, A(-1)) : x);
  }
};
template <typename A>
struct SumSquare : Sum<A> {
  static A Step(A sum, A x) { return Plus(sum, Times(x, x)); }
};
template <typename A>
struct L2 : SumSquare<A> {
  static A End(A sum, int64_t) {
    return static_cast<A>(std::sqrt(static_cast<double>(sum)));
  }
};
template <typename A>
struct LogSum : Sum<A> {
  static A End(A sum, int64_t) {
    return static_cast<A>(std::log(static_cast<double>(sum)));
  }
};
template <typename A>
struct Max : Sum<A> {
  static A Start() {
    using Limits = std::numeric_limits<A>;
    return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  }
  static A Step(A most, A x) { return x > most || x != x ? x : most; }
};
template <typename A>
struct Min : Sum<A> {
  static A Start() {
    using Limits = std::numeric_limits<A>;
    return Limits::has_infinity ? Limits::infinity() : Limits::max();
  }
  static A Step(A least, A x) { return x < least || x != x ? x : least; }
};

// Calls body(offset) for each element over which is reduced, innermost last.
template <typename Body>
void ForReduced(const Shape& sizes, const Shape& strides, Body&& body) {
  const int64_t count = sizes.num_elements();
  if (count == 0) return;
  const int last = sizes.rank() - 1;
  const int64_t length = last < 0 ? 1 : sizes[last];
  const int64_t step = last < 0 ? 0 : strides[last];
  for (int64_t row = 0; row < count / length; ++row) {
    int64_t at = 0;
    int64_t rest = row;
    for (int k = last - 1; k >= 0; --k) {
      at += rest % sizes[k] * strides[k];
      rest /= sizes[k];
    }
    for (int64_t i = 0; i < length; ++i) body(at + i * step);
  }
}

template <typename T, typename A, template <typename> typename Of>
void Reduce(const Call& call, const Result& out, const Axes& axes,
            const Team& team) {
  const Shape& x = call.arg(0).shape;
  const Shape own = x.Strides();
  Shape kept, kept_strides, gone, gone_strides;
  for (int i = 0; i < x.rank(); ++i) {
    const bool reduced = axes.reduced[static_cast<size_t>(i)];
    (reduced ? gone : kept).Append(x[i]);
    (reduced ? gone_strides : kept_strides).Append(own[i]);
  }
  const int64_t count = gone.num_elements();
  // A row of results lies side by side in the operand, too.
  const bool rows = x.rank() > 0 && !axes.reduced.back();
  const int64_t width = rows ? x.back() : 1;
  const int64_t total = kept.num_elements();
  const auto [begin, end] = team.Share(width == 0 ? 0 : total / width);
  std::vector<A> sums(static_cast<size_t>(width));
  for (int64_t row = begin; row < end; ++row) {
    int64_t from = 0;
    int64_t rest = row;
    for (int k = kept.rank() - (rows ? 2 : 1); k >= 0; --k) {
      from += rest % kept[k] * kept_strides[k];
      rest /= kept[k];
    }
    const T* data = call.arg(0).data<T>() + from;
    std::fill(sums.begin(), sums.end(), Of<A>::Start());
    if (width == 1) {
      A sum = Of<A>::Start();
      ForReduced(gone, gone_strides, [&](int64_t at) {
        sum = Of<A>::Step(sum,
                          static_cast<A>(static_cast<MathType<T>>(data[at])));
      });
      sums[0] = sum;
    } else {
      ForReduced(gone, gone_strides, [&](int64_t at) {
        const T* run = data + at;
        for (int64_t i = 0; i < width; ++i) {
          A& sum = sums[static_cast<size_t>(i)];
          sum = Of<A>::Step(sum,
                            static_cast<A>(static_cast<MathType<T>>(run[i])));
        }
      });
    }
    T* y = out.data<T>() + row * width;
    for (int64_t i = 0; i < width; ++i) {
      y[i] = static_cast<T>(static_cast<MathType<T>>(
          Of<A>::End(sums[static_cast<size_t>(i)], count)));
    }
  }
}

template <template <typename> typename Of, bool kWide = true>
Status Run(const Call& call, std::span<const Result> results,
           const Team& team) {
  ASSIGN_OR_RETURN(const Axes axes, ReducedAxes(call));
  Dispatch(call.arg(0).dtype, [&]<typename T>() {
    if constexpr (std::is_same_v<T, bool>) {
      // Only of Max and Min, whose bounds are 0 and 1.
      if constexpr (!kWide)
        Reduce<bool, uint8_t, Of>(call, results[0], axes, team);
    } else if constexpr (kWide) {
      Reduce<T, Wide<T>, Of>(call, results[0], axes, team);
    } else {
      Reduce<T, MathType<T>, Of>(call, results[0], axes, team);
    }
  });
  return OkStatus();
}

// log(sum(exp(x))), about the greatest so that nothing overflows.
struct Exps {
  double most = -std::numeric_limits<double>::infinity();
  double sum = 0;  // of exp(x - most)
};

Status RunLogSumExp(const Call& call, std::span<const Result> results,
                    const Team& team) {
  ASSIGN_OR_RETURN(const Axes axes, ReducedAxes(call));
  const Shape& x = call.arg(0).shape;
  const Shape own = x.Strides();
  Shape kept, kept_strides, gone, gone_strides;
  for (int i = 0; i < x.rank(); ++i) {
    const bool reduced = axes.reduced[static_cast<size_t>(i)];
    (reduced ? gone : kept).Append(x[i]);
    (reduced ? gone_strides : kept_strides).Append(own[i]);
  }
  Dispatch(call.arg(0).dtype, [&]<typename T>() {
    const auto [begin, end] = team.Share(kept.num_elements());
    for (int64_t out = begin; out < end; ++out) {
      int64_t from = 0;
      int64_t rest = out;
      for (int k = kept.rank() - 1; k >= 0; --k) {
        from += rest % kept[k] * kept_strides[k];
        rest /= kept[k];
      }
      const T* data = call.arg(0).data<T>() + from;
      Exps exps;
      ForReduced(gone, gone_strides, [&](int64_t at) {
        exps.most = std::max(exps.most, static_cast<double>(data[at]));
      });
      const double base = std::isinf(exps.most) ? 0 : exps.most;
      ForReduced(gone, gone_strides, [&](int64_t at) {
        exps.sum += std::exp(static_cast<double>(data[at]) - base);
      });
      results[0].data<T>()[out] =
          static_cast<T>(static_cast<MathType<T>>(std::log(exps.sum) + base));
    }
  });
  return OkStatus();
}

constexpr OpFacts kReduction = {.layout = LayoutRule::kReduce,
                                .keeps_rows = rows::Reduced};

constexpr OpDef kOps[] = {
    {"ReduceL1", Infer<false>, Run<L1>, Work::kSplits, kReduction},
    {"ReduceL2", Infer<false>, Run<L2>, Work::kSplits, kReduction},
    {"ReduceLogSum", Infer<false>, Run<LogSum>, Work::kSplits, kReduction},
    {"ReduceLogSumExp", Infer<false>, RunLogSumExp, Work::kSplits, kReduction},
    {"ReduceMax", Infer<true>, Run<Max, false>, Work::kSplits, kReduction},
    {"ReduceMean", Infer<false>, Run<Mean>, Work::kSplits, kReduction},
    {"ReduceMin", Infer<true>, Run<Min, false>, Work::kSplits, kReduction},
    {"ReduceProd", Infer<false>, Run<Product>, Work::kSplits, kReduction},
    {"ReduceSum", Infer<false>, Run<Sum>, Work::kSplits, kReduction},
    {"ReduceSumSquare", Infer<false>, Run<SumSquare>, Work::kSplits,
     kReduction},
};

}  // namespace

std::span<const OpDef> ReduceOps() { return kOps; }

}  // namespace millrace::models::graph
