// Pow and Mod: two operands that need not wrap or may differ in type.
#include <cmath>
#include <type_traits>

#include "models/graph/ops/checks.h"
#include "models/graph/ops/dispatch.h"
#include "models/graph/ops/elementwise.h"
#include "models/graph/ops/facts.h"
#include "models/graph/ops/op_groups.h"

namespace millrace::models::graph {
namespace {

// The result has the type of the base.
StatusOr<OutTypes> InferPow(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 2, 2));
  for (const Arg& arg : call.args) {
    if (arg.dtype == DType::kBool) return WrongType(arg);
  }
  ASSIGN_OR_RETURN(const Shape shape,
                   Broadcast(call.arg(0).shape, call.arg(1).shape));
  return OutTypes{{call.arg(0).dtype, shape}};
}

StatusOr<OutTypes> InferMod(const Call& call) {
  ASSIGN_OR_RETURN(OutTypes types, InferPow(call));
  RETURN_IF_ERROR(CheckSameType(call.arg(0), call.arg(1)));
  return types;
}

// By squaring, wrapping around; a negative power of a whole number is 0 unless
// the number is 1 or -1.
template <typename T, typename E>
T IntegerPower(T base, E exponent) {
  if constexpr (std::is_signed_v<E>) {
    if (exponent < 0) {
      if (base == T{1}) return 1;
      if constexpr (std::is_signed_v<T>) {
        if (base == T{-1}) return exponent % 2 == 0 ? 1 : -1;
      }
      return 0;
    }
  }
  uint64_t factor = static_cast<uint64_t>(base);
  uint64_t result = 1;
  for (auto left = static_cast<uint64_t>(exponent); left != 0; left >>= 1) {
    if (left & 1) result *= factor;
    factor *= factor;
  }
  return static_cast<T>(result);
}

template <typename T, typename E>
T Power(T base, E exponent) {
  if constexpr (std::is_integral_v<T> && std::is_integral_v<E>) {
    return IntegerPower(base, exponent);
  } else if constexpr (std::is_same_v<T, float> && std::is_same_v<E, float>) {
    if (exponent == 2.0f) return base * base;
    if (exponent == 0.5f) return std::sqrt(base);
    return std::pow(base, exponent);
  } else {
    const double power =
        std::pow(static_cast<double>(base), static_cast<double>(exponent));
    if constexpr (std::is_integral_v<T>) {
      // What does not fit is no behaviour of C++.
      if (!(std::fabs(power) < 0x1p63)) return 0;
      return static_cast<T>(static_cast<int64_t>(power));
    } else {
      return static_cast<T>(power);
    }
  }
}

Status RunPow(const Call& call, std::span<const Result> results,
              const Team& team) {
  Dispatch(call.arg(0).dtype, [&]<typename T>() {
    Dispatch(call.arg(1).dtype, [&]<typename E>() {
      if constexpr (!std::is_same_v<T, bool> && !std::is_same_v<E, bool>) {
        Map2<T, E, T>(call, results[0], team, [](T base, E exponent) {
          return static_cast<T>(Power(static_cast<MathType<T>>(base),
                                      static_cast<MathType<E>>(exponent)));
        });
      }
    });
  });
  return OkStatus();
}

// The sign is the divisor's, or with fmod the dividend's; 0 for the divisor 0.
template <typename T>
T Remainder(T a, T b, bool fmod) {
  if constexpr (std::is_floating_point_v<T>) {
    const T rest = std::fmod(a, b);
    if (fmod || b == T{0}) return rest;
    if (rest == T{0}) return std::copysign(T{0}, b);
    return (rest < 0) != (b < 0) ? rest + b : rest;
  } else {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return 0;
      const T rest = static_cast<T>(a % b);
      const bool adjusts = !fmod && rest != 0 && (rest < 0) != (b < 0);
      return static_cast<T>(adjusts ? rest + b : rest);
    } else {
      return static_cast<T>(a % b);
    }
  }
}

Status RunMod(const Call& call, std::span<const Result> results,
              const Team& team) {
  const bool fmod = call.attrs().Int("fmod", 0) != 0;
  Dispatch(call.arg(0).dtype, [&]<typename T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      Map2<T, T, T>(call, results[0], team, [fmod](T a, T b) {
        return static_cast<T>(Remainder(static_cast<MathType<T>>(a),
                                        static_cast<MathType<T>>(b), fmod));
      });
    }
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"Mod", InferMod, RunMod, Work::kSplits, kBroadcastFact},
    {"Pow", InferPow, RunPow, Work::kSplits, kBroadcastFact},
};

}  // namespace

std::span<const OpDef> PowerOps() { return kOps; }

}  // namespace millrace::models::graph
