// Functions of one operand, element by element. 16-bit floats are computed in
// f32 and rounded once.
#include <cmath>
#include <type_traits>

#include "models/graph/ops/checks.h"
#include "models/graph/ops/dispatch.h"
#include "models/graph/ops/elementwise.h"
#include "models/graph/ops/facts.h"
#include "models/graph/ops/op_groups.h"

namespace millrace::models::graph {
namespace {

StatusOr<OutTypes> InferFloat(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 1));
  if (!IsFloat(call.arg(0).dtype)) return WrongType(call.arg(0));
  return OutTypes{{call.arg(0).dtype, call.arg(0).shape}};
}

StatusOr<OutTypes> InferNumber(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 1));
  if (call.arg(0).dtype == DType::kBool) return WrongType(call.arg(0));
  return OutTypes{{call.arg(0).dtype, call.arg(0).shape}};
}

StatusOr<OutTypes> InferInteger(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 1));
  if (!IsInteger(call.arg(0).dtype)) return WrongType(call.arg(0));
  return OutTypes{{call.arg(0).dtype, call.arg(0).shape}};
}

StatusOr<OutTypes> InferQuestion(const Call& call) {
  ASSIGN_OR_RETURN(OutTypes types, InferFloat(call));
  types[0].dtype = DType::kBool;
  return types;
}

StatusOr<OutTypes> InferNot(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 1));
  if (call.arg(0).dtype != DType::kBool) return WrongType(call.arg(0));
  return OutTypes{{DType::kBool, call.arg(0).shape}};
}

// Of floats alone: `kOf` on float and double.
template <auto kOf>
Status RunFloat(const Call& call, std::span<const Result> results,
                const Team& team) {
  Dispatch(call.arg(0).dtype, [&]<typename T>() {
    if constexpr (kIsFloat<T>) {
      Map<T, T>(call, results[0], team, [](T x) {
        return static_cast<T>(kOf(static_cast<MathType<T>>(x)));
      });
    }
  });
  return OkStatus();
}

// Of floats and integers.
template <auto kOf>
Status RunNumber(const Call& call, std::span<const Result> results,
                 const Team& team) {
  Dispatch(call.arg(0).dtype, [&]<typename T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      Map<T, T>(call, results[0], team, [](T x) {
        return static_cast<T>(kOf(static_cast<MathType<T>>(x)));
      });
    }
  });
  return OkStatus();
}

// Of floats; integers stay what they are.
constexpr auto kAbs = [](auto x) {
  using T = decltype(x);
  if constexpr (std::is_floating_point_v<T>) {
    return std::fabs(x);
  } else if constexpr (std::is_signed_v<T>) {
    using U = std::make_unsigned_t<T>;  // the least number has no opposite
    return static_cast<T>(x < 0 ? U{0} - static_cast<U>(x) : static_cast<U>(x));
  } else {
    return x;
  }
};
constexpr auto kNeg = [](auto x) {
  using T = decltype(x);
  if constexpr (std::is_floating_point_v<T>) {
    return -x;
  } else {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(U{0} - static_cast<U>(x));
  }
};
constexpr auto kSign = [](auto x) {
  using T = decltype(x);
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(x)) return x;
  }
  return static_cast<T>((x > T{0}) - (x < T{0}));
};

constexpr auto kCeil = [](auto x) { return std::ceil(x); };
constexpr auto kFloor = [](auto x) { return std::floor(x); };
constexpr auto kRound = [](auto x) { return std::nearbyint(x); };  // to even
constexpr auto kSqrt = [](auto x) { return std::sqrt(x); };
constexpr auto kReciprocal = [](auto x) { return decltype(x){1} / x; };
constexpr auto kExp = [](auto x) { return std::exp(x); };
constexpr auto kLog = [](auto x) { return std::log(x); };
constexpr auto kErf = [](auto x) { return std::erf(x); };
constexpr auto kSin = [](auto x) { return std::sin(x); };
constexpr auto kCos = [](auto x) { return std::cos(x); };
constexpr auto kTan = [](auto x) { return std::tan(x); };
constexpr auto kAsin = [](auto x) { return std::asin(x); };
constexpr auto kAcos = [](auto x) { return std::acos(x); };
constexpr auto kAtan = [](auto x) { return std::atan(x); };
constexpr auto kSinh = [](auto x) { return std::sinh(x); };
constexpr auto kCosh = [](auto x) { return std::cosh(x); };
constexpr auto kAsinh = [](auto x) { return std::asinh(x); };
constexpr auto kAcosh = [](auto x) { return std::acosh(x); };
constexpr auto kAtanh = [](auto x) { return std::atanh(x); };

Status RunNot(const Call& call, std::span<const Result> results,
              const Team& team) {
  Map<uint8_t, uint8_t>(call, results[0], team,
                        [](uint8_t x) { return static_cast<uint8_t>(x == 0); });
  return OkStatus();
}

Status RunBitwiseNot(const Call& call, std::span<const Result> results,
                     const Team& team) {
  DispatchBytes(DTypeBytes(call.arg(0).dtype), [&]<typename T>() {
    Map<T, T>(call, results[0], team, [](T x) { return static_cast<T>(~x); });
  });
  return OkStatus();
}

Status RunIsNan(const Call& call, std::span<const Result> results,
                const Team& team) {
  Dispatch(call.arg(0).dtype, [&]<typename T>() {
    if constexpr (kIsFloat<T>) {
      Map<T, bool>(call, results[0], team,
                   [](T x) { return std::isnan(static_cast<MathType<T>>(x)); });
    }
  });
  return OkStatus();
}

Status RunIsInf(const Call& call, std::span<const Result> results,
                const Team& team) {
  const bool negative = call.attrs().Int("detect_negative", 1) != 0;
  const bool positive = call.attrs().Int("detect_positive", 1) != 0;
  Dispatch(call.arg(0).dtype, [&]<typename T>() {
    if constexpr (kIsFloat<T>) {
      Map<T, bool>(call, results[0], team, [=](T x) {
        const auto value = static_cast<MathType<T>>(x);
        return std::isinf(value) && (value < 0 ? negative : positive);
      });
    }
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"Abs", InferNumber, RunNumber<kAbs>, Work::kSplits,
     kActivationFact<Unary::kAbs>},
    {"Acos", InferFloat, RunFloat<kAcos>, Work::kSplits},
    {"Acosh", InferFloat, RunFloat<kAcosh>, Work::kSplits},
    {"Asin", InferFloat, RunFloat<kAsin>, Work::kSplits},
    {"Asinh", InferFloat, RunFloat<kAsinh>, Work::kSplits},
    {"Atan", InferFloat, RunFloat<kAtan>, Work::kSplits},
    {"Atanh", InferFloat, RunFloat<kAtanh>, Work::kSplits},
    {"BitwiseNot", InferInteger, RunBitwiseNot, Work::kSplits},
    {"Ceil", InferFloat, RunFloat<kCeil>, Work::kSplits,
     kActivationFact<Unary::kCeil>},
    {"Cos", InferFloat, RunFloat<kCos>, Work::kSplits, kUnaryFact},
    {"Cosh", InferFloat, RunFloat<kCosh>, Work::kSplits},
    {"Erf", InferFloat, RunFloat<kErf>, Work::kSplits,
     kActivationFact<Unary::kErf>},
    {"Exp", InferFloat, RunFloat<kExp>, Work::kSplits,
     kActivationFact<Unary::kExp>},
    {"Floor", InferFloat, RunFloat<kFloor>, Work::kSplits,
     kActivationFact<Unary::kFloor>},
    {"IsInf", InferQuestion, RunIsInf, Work::kSplits, kUnaryFact},
    {"IsNaN", InferQuestion, RunIsNan, Work::kSplits, kUnaryFact},
    {"Log", InferFloat, RunFloat<kLog>, Work::kSplits,
     kActivationFact<Unary::kLog>},
    {"Neg", InferNumber, RunNumber<kNeg>, Work::kSplits,
     kActivationFact<Unary::kNeg>},
    {"Not", InferNot, RunNot, Work::kSplits, kUnaryFact},
    {"Reciprocal", InferFloat, RunFloat<kReciprocal>, Work::kSplits,
     kActivationFact<Unary::kReciprocal>},
    {"Round", InferFloat, RunFloat<kRound>, Work::kSplits,
     kActivationFact<Unary::kRound>},
    {"Sign", InferNumber, RunNumber<kSign>, Work::kSplits, kUnaryFact},
    {"Sin", InferFloat, RunFloat<kSin>, Work::kSplits, kUnaryFact},
    {"Sinh", InferFloat, RunFloat<kSinh>, Work::kSplits},
    {"Sqrt", InferFloat, RunFloat<kSqrt>, Work::kSplits,
     kActivationFact<Unary::kSqrt>},
    {"Tan", InferFloat, RunFloat<kTan>, Work::kSplits},
};

}  // namespace

std::span<const OpDef> UnaryOps() { return kOps; }

}  // namespace millrace::models::graph
