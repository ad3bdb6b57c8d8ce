// Functions that ONNX has not. Computed in double precision and rounded once:
//
//   Lgamma(x)    log |Γ(x)|
//   Digamma(x)   Γ'(x) / Γ(x): minus infinity at 0, NaN at other poles
//   ErfInv(x)    y with erf(y) = x; NaN outside of [-1, 1]
//
// Functions that lose all digits where they are made of others, computed in the
// operand's type:
//
//   Log1p(x)     log(1 + x), near 0
//   Expm1(x)     eˣ - 1, near 0
//   Erfc(x)      1 - erf(x), where erf(x) is near 1
#include <cmath>
#include <limits>

#include "models/graph/ops/checks.h"
#include "models/graph/ops/dispatch.h"
#include "models/graph/ops/elementwise.h"
#include "models/graph/ops/facts.h"
#include "models/graph/ops/op_groups.h"

namespace millrace::models::graph {
namespace {

constexpr double kPi = 3.141592653589793;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double Lgamma(double x) {
  int sign = 0;  // std::lgamma keeps it where all threads would write
  return lgamma_r(x, &sign);
}

// Γ'/Γ grows by 1/x from x to x + 1; far out it is its asymptotic series
// (Abramowitz and Stegun, 6.3.18).
double Digamma(double x) {
  if (x == 0) return std::copysign(kInfinity, -x);
  if (x < 0) {
    if (x == std::floor(x)) return kNan;
    const double part = x - std::floor(x);  // tan has the period π
    return Digamma(1 - x) - kPi / std::tan(kPi * part);
  }
  double sum = 0;
  for (; x < 10; x += 1) sum -= 1 / x;
  const double square = 1 / (x * x);
  const double series =
      square *
      (1.0 / 12 -
       square * (1.0 / 120 -
                 square * (1.0 / 252 -
                           square * (1.0 / 240 - square * (1.0 / 132)))));
  return sum + std::log(x) - 0.5 / x - series;
}

// A first guess by the logarithm (Winitzki 2008), then Newton's steps on what
// is small: erf near 0, erfc near 1.
double ErfInv(double x) {
  const double size = std::fabs(x);
  if (!(size <= 1)) return kNan;
  if (size == 1) return std::copysign(kInfinity, x);
  if (size == 0) return x;
  constexpr double kA = 0.147;
  const double log = std::log1p(-size * size);
  const double middle = 2 / (kPi * kA) + log / 2;
  double y = std::sqrt(std::sqrt(middle * middle - log / kA) - middle);
  for (int i = 0; i < 4; ++i) {
    const double error =
        size < 0.5 ? std::erf(y) - size : (1 - size) - std::erfc(y);
    const double step = error * std::sqrt(kPi) / 2 * std::exp(y * y);
    y -= step / (1 + y * step);  // Halley's: of third order
  }
  return std::copysign(y, x);
}

StatusOr<OutTypes> InferFloat(const Call& call) {
  RETURN_IF_ERROR(CheckOperands(call, 1, 1));
  if (!IsFloat(call.arg(0).dtype)) return WrongType(call.arg(0));
  return OutTypes{{call.arg(0).dtype, call.arg(0).shape}};
}

template <double (*kOf)(double)>
Status Run(const Call& call, std::span<const Result> results,
           const Team& team) {
  Dispatch(call.arg(0).dtype, [&]<typename T>() {
    if constexpr (kIsFloat<T>) {
      Map<T, T>(call, results[0], team, [](T x) {
        const double y = kOf(static_cast<double>(static_cast<MathType<T>>(x)));
        return static_cast<T>(static_cast<MathType<T>>(y));
      });
    }
  });
  return OkStatus();
}

struct Log1p {
  template <typename M>
  M operator()(M x) const {
    return std::log1p(x);
  }
};
struct Expm1 {
  template <typename M>
  M operator()(M x) const {
    return std::expm1(x);
  }
};
struct Erfc {
  template <typename M>
  M operator()(M x) const {
    return std::erfc(x);
  }
};

template <typename Of>
Status RunInType(const Call& call, std::span<const Result> results,
                 const Team& team) {
  Dispatch(call.arg(0).dtype, [&]<typename T>() {
    if constexpr (kIsFloat<T>) {
      Map<T, T>(call, results[0], team, [](T x) {
        return static_cast<T>(Of()(static_cast<MathType<T>>(x)));
      });
    }
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"Digamma", InferFloat, Run<Digamma>, Work::kSplits, kUnaryFact},
    {"Erfc", InferFloat, RunInType<Erfc>, Work::kSplits, kUnaryFact},
    {"ErfInv", InferFloat, Run<ErfInv>, Work::kSplits, kUnaryFact},
    {"Expm1", InferFloat, RunInType<Expm1>, Work::kSplits, kUnaryFact},
    {"Lgamma", InferFloat, Run<Lgamma>, Work::kSplits, kUnaryFact},
    {"Log1p", InferFloat, RunInType<Log1p>, Work::kSplits, kUnaryFact},
};

}  // namespace

std::span<const OpDef> SpecialOps() { return kOps; }

}  // namespace millrace::models::graph
