// Functions of one or more operands, broadcast to one shape: the result so far
// is combined with each operand in turn.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "models/graph/ops/checks.h"
#include "models/graph/ops/dispatch.h"
#include "models/graph/ops/elementwise.h"
#include "models/graph/ops/facts.h"
#include "models/graph/ops/op_groups.h"

namespace millrace::models::graph {
namespace {

StatusOr<OutTypes> InferNumbers(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, call.args.size()));
  Shape shape = call.arg(0).shape;
  for (const Arg& arg : call.args) {
    if (!arg.given) return InvalidArgument("an operand is missing");
    if (arg.dtype == DType::kBool) return WrongType(arg);
    RETURN_IF_ERROR(CheckSameType(call.arg(0), arg));
    ASSIGN_OR_RETURN(shape, Broadcast(shape, arg.shape));
  }
  return OutTypes{{call.arg(0).dtype, shape}};
}

StatusOr<OutTypes> InferFloats(const Call& call) {
  ASSIGN_OR_RETURN(OutTypes types, InferNumbers(call));
  if (!IsFloat(types[0].dtype)) return WrongType(call.arg(0));
  return types;
}

struct SumOf {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) +
                            static_cast<uint64_t>(b));
    } else {
      return a + b;
    }
  }
};
// What is no number stays that.
struct MinOf {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(a) || std::isnan(b)) return a + b;
    }
    return b < a ? b : a;
  }
};
struct MaxOf {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(a) || std::isnan(b)) return a + b;
    }
    return b > a ? b : a;
  }
};

// Rows of the result stay in cache while all operands pass.
template <typename T, typename Of>
void Combine(const Call& call, const Result& result, const Team& team,
             double factor) {
  using Math = MathType<T>;
  const auto [begin, end] = team.Share(result.num_elements(), 64);
  if (begin == end) return;
  std::vector<Math> sums(static_cast<size_t>(end - begin));
  for (size_t k = 0; k < call.args.size(); ++k) {
    const T* x = call.args[k].data<T>();
    const BroadcastWalk walk(result.shape, {call.args[k].shape});
    const int64_t length = walk.row_length();
    walk.ForRows(
        begin / length, (end - 1) / length + 1, [&](const BroadcastRow& row) {
          const int64_t first = std::max(begin, row.out);
          const int64_t last = std::min(end, row.out + length);
          for (int64_t i = first; i < last; ++i) {
            const auto value =
                static_cast<Math>(x[row.at[0] + (i - row.out) * row.step[0]]);
            Math& sum = sums[static_cast<size_t>(i - begin)];
            sum = k == 0 ? value : Of()(sum, value);
          }
        });
  }
  T* y = result.data<T>();
  for (int64_t i = begin; i < end; ++i) {
    const Math sum = sums[static_cast<size_t>(i - begin)];
    if constexpr (std::is_floating_point_v<Math>) {
      y[i] = static_cast<T>(sum * static_cast<Math>(factor));
    } else {
      y[i] = static_cast<T>(sum);
    }
  }
}

template <typename Of, bool kMean = false>
Status Run(const Call& call, std::span<const Result> results,
           const Team& team) {
  const double factor =
      kMean ? 1.0 / static_cast<double>(call.args.size()) : 1.0;
  Dispatch(call.arg(0).dtype, [&]<typename T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      Combine<T, Of>(call, results[0], team, factor);
    }
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"Max", InferNumbers, Run<MaxOf>, Work::kSplits, kBroadcastFact},
    {"Mean", InferFloats, Run<SumOf, true>, Work::kSplits},
    {"Min", InferNumbers, Run<MinOf>, Work::kSplits, kBroadcastFact},
    {"Sum", InferFloats, Run<SumOf>, Work::kSplits},
};

}  // namespace

std::span<const OpDef> VariadicOps() { return kOps; }

}  // namespace millrace::models::graph
