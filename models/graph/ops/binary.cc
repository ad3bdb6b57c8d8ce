// Arithmetic and comparisons of two operands, broadcast to one shape. 16-bit
// floats are computed in f32 and rounded once; integers wrap around.
#include <cmath>
#include <string_view>
#include <type_traits>

#include "models/graph/ops/broadcast.h"
#include "models/graph/ops/dispatch.h"
#include "models/graph/ops/elementwise.h"
#include "models/graph/ops/facts.h"
#include "models/graph/ops/op_groups.h"
#include "models/tensor/strings.h"

namespace millrace::models::graph {
namespace {

// What integers wrap in: overflow of signed ones is no behaviour of C++.
template <typename T>
using Wrapping =
    typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                std::type_identity<T>>::type;

struct AddOf {
  template <typename T>
  T operator()(T a, T b) const {
    using W = Wrapping<T>;
    return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
  }
};
struct SubOf {
  template <typename T>
  T operator()(T a, T b) const {
    using W = Wrapping<T>;
    return static_cast<T>(static_cast<W>(a) - static_cast<W>(b));
  }
};
struct MulOf {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      // uint16_t would be promoted to a signed int that can overflow.
      return static_cast<T>(static_cast<uint64_t>(a) *
                            static_cast<uint64_t>(b));
    } else {
      return a * b;
    }
  }
};
// Integers: towards zero, and 0 where the divisor is 0 (ONNX leaves that open;
// a server must not trap).
struct DivOf {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0) return 0;
      if constexpr (std::is_signed_v<T>) {
        if (b == -1) return SubOf()(T{0}, a);
      }
      return static_cast<T>(a / b);
    } else {
      return a / b;
    }
  }
};
// Of floats, which ONNX has not: the whole number at or below the quotient as
// PyTorch finds it. a - fmod(a, b) is divided rather than a, so that the
// quotient is a whole number but for one rounding: of 1 by 0.1 it is 9.
struct FloorDivOf {
  template <typename T>
  T operator()(T a, T b) const {
    if (b == 0) return a / b;
    const T rest = std::fmod(a, b);
    T quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
    if (quotient == 0) return std::copysign(T{0}, a / b);
    const T whole = std::floor(quotient);
    return quotient - whole > T{0.5} ? whole + 1 : whole;
  }
};
struct EqualOf {
  template <typename T>
  bool operator()(T a, T b) const {
    return a == b;
  }
};
struct LessOf {
  template <typename T>
  bool operator()(T a, T b) const {
    return a < b;
  }
};
struct LessOrEqualOf {
  template <typename T>
  bool operator()(T a, T b) const {
    return a <= b;
  }
};
struct GreaterOf {
  template <typename T>
  bool operator()(T a, T b) const {
    return a > b;
  }
};
struct GreaterOrEqualOf {
  template <typename T>
  bool operator()(T a, T b) const {
    return a >= b;
  }
};

StatusOr<Shape> InferShape(const Call& call) {
  const Arg& a = call.arg(0);
  const Arg& b = call.arg(1);
  if (!a.given || !b.given || call.args.size() > 2) {
    return InvalidArgument("two operands are needed");
  }
  if (a.dtype != b.dtype) {
    return InvalidArgument("operands are " + TypeText(a.dtype, a.shape) +
                           " and " + TypeText(b.dtype, b.shape) +
                           ": they must be of one type");
  }
  return Broadcast(a.shape, b.shape);
}

StatusOr<std::vector<ValueType>> InferArithmetic(const Call& call) {
  ASSIGN_OR_RETURN(const Shape shape, InferShape(call));
  if (call.arg(0).dtype == DType::kBool) {
    return InvalidArgument("there is no arithmetic of BOOL");
  }
  return std::vector<ValueType>{{call.arg(0).dtype, shape}};
}

StatusOr<std::vector<ValueType>> InferFloats(const Call& call) {
  ASSIGN_OR_RETURN(std::vector<ValueType> types, InferArithmetic(call));
  if (IsFloat(types[0].dtype)) return types;
  return InvalidArgument("operands are " +
                         TypeText(types[0].dtype, call.arg(0).shape) +
                         ", not floats");
}

StatusOr<std::vector<ValueType>> InferComparison(const Call& call) {
  ASSIGN_OR_RETURN(const Shape shape, InferShape(call));
  return std::vector<ValueType>{{DType::kBool, shape}};
}

template <typename Of, typename T>
void Compute(const Call& call, const Result& out, const Team& team) {
  using Math = MathType<T>;
  using Out = std::conditional_t<
      std::is_same_v<std::invoke_result_t<Of, Math, Math>, bool>, bool, T>;
  const T* a = call.arg(0).data<T>();
  const T* b = call.arg(1).data<T>();
  Out* y = out.data<Out>();
  const BroadcastWalk walk(out.shape, {call.arg(0).shape, call.arg(1).shape});
  const auto [begin, end] = team.Share(walk.num_rows());
  walk.ForRows(begin, end, [&](const BroadcastRow& row) {
    for (int64_t i = 0; i < row.length; ++i) {
      y[row.out + i] = static_cast<Out>(
          Of()(static_cast<Math>(a[row.at[0] + i * row.step[0]]),
               static_cast<Math>(b[row.at[1] + i * row.step[1]])));
    }
  });
}

template <typename Of>
Status Run(const Call& call, std::span<const Result> results,
           const Team& team) {
  Dispatch(call.arg(0).dtype, [&]<typename T>() {
    // infer has refused arithmetic of bool.
    constexpr bool kComputes =
        !std::is_same_v<T, bool> ||
        std::is_same_v<std::invoke_result_t<Of, uint8_t, uint8_t>, bool>;
    if constexpr (kComputes) {
      using U = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
      Compute<Of, U>(call, results[0], team);
    }
  });
  return OkStatus();
}

Status RunFloorDiv(const Call& call, std::span<const Result> results,
                   const Team& team) {
  Dispatch(call.arg(0).dtype, [&]<typename T>() {
    if constexpr (kIsFloat<T>) Compute<FloorDivOf, T>(call, results[0], team);
  });
  return OkStatus();
}

Status RunEqual(const Call& call, std::span<const Result> results,
                const Team& team) {
  if (call.arg(0).dtype != kString) return Run<EqualOf>(call, results, team);
  Map2<std::string_view, std::string_view, bool>(
      call, results[0], team,
      [](std::string_view a, std::string_view b) { return a == b; });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"Add", InferArithmetic, Run<AddOf>, Work::kSplits, kBroadcastFact},
    {"Sub", InferArithmetic, Run<SubOf>, Work::kSplits, kBroadcastFact},
    {"Mul", InferArithmetic, Run<MulOf>, Work::kSplits, kBroadcastFact},
    {"Div", InferArithmetic, Run<DivOf>, Work::kSplits, kBroadcastFact},
    {"FloorDiv", InferFloats, RunFloorDiv, Work::kSplits, kBroadcastFact},
    {"Equal", InferComparison, RunEqual, Work::kSplits, kBroadcastStringsFact},
    {"Less", InferComparison, Run<LessOf>, Work::kSplits, kBroadcastFact},
    {"LessOrEqual", InferComparison, Run<LessOrEqualOf>, Work::kSplits,
     kBroadcastFact},
    {"Greater", InferComparison, Run<GreaterOf>, Work::kSplits, kBroadcastFact},
    {"GreaterOrEqual", InferComparison, Run<GreaterOrEqualOf>, Work::kSplits,
     kBroadcastFact},
};

}  // namespace

std::span<const OpDef> BinaryOps() { return kOps; }

}  // namespace millrace::models::graph
