// Determinants of the last two dimensions, by elimination with the largest
// pivot, in f64.
//
//   Det(a)       as ONNX has it
//   SLogDet(a)   sign (0 of a singular matrix) and log |det(a)|, also where the
//                determinant is too large or small a number; ONNX has it not
#include <cmath>

#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"

namespace millrace::models::graph {
namespace {

StatusOr<ValueType> OneForEach(const Call& call) {
  RETURN_IF_ERROR(OneFloat(call));
  RETURN_IF_ERROR(RankAtLeast(call.arg(0), 2, "the operand"));
  Shape out = call.arg(0).shape;
  if (out[out.rank() - 2] != out.back()) {
    return InvalidArgument("matrices of " + out.ToString() + " are not square");
  }
  out.Erase(out.rank() - 1);
  out.Erase(out.rank() - 1);
  return ValueType{call.arg(0).dtype, out};
}

Types Infer(const Call& call) {
  ASSIGN_OR_RETURN(const ValueType one, OneForEach(call));
  return Outputs(call, {one});
}
Types InferSLogDet(const Call& call) {
  ASSIGN_OR_RETURN(const ValueType one, OneForEach(call));
  return Outputs(call, {one, one});
}

// Calls take(factor) for each factor of the determinant: pivots, and -1 for
// each exchange of rows. A factor of 0 is the last.
template <typename F>
void ForFactors(std::vector<double>& a, int64_t n, F&& take) {
  const auto at = [&](int64_t row, int64_t col) -> double& {
    return a[static_cast<size_t>(row * n + col)];
  };
  for (int64_t i = 0; i < n; ++i) {
    int64_t pivot = i;
    for (int64_t r = i + 1; r < n; ++r) {
      if (std::abs(at(r, i)) > std::abs(at(pivot, i))) pivot = r;
    }
    if (at(pivot, i) == 0) return take(0.0);
    if (pivot != i) {
      for (int64_t c = 0; c < n; ++c) std::swap(at(pivot, c), at(i, c));
      take(-1.0);
    }
    take(at(i, i));
    for (int64_t r = i + 1; r < n; ++r) {
      const double factor = at(r, i) / at(i, i);
      for (int64_t c = i; c < n; ++c) at(r, c) -= factor * at(i, c);
    }
  }
}

Status Run(const Call& call, std::span<const Result> results,
           const Team& team) {
  const int64_t n = call.arg(0).shape.back();
  const auto [begin, end] = team.Share(results[0].num_elements());
  DispatchFloat(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    for (int64_t i = b; i < e; ++i) {
      const T* x = call.arg(0).data<T>() + i * n * n;
      std::vector<double> a(x, x + n * n);
      double product = 1;
      ForFactors(a, n, [&](double factor) {
        product = factor == 0 ? 0 : product * factor;
      });
      results[0].data<T>()[i] =
          static_cast<T>(static_cast<MathType<T>>(product));
    }
  });
  return OkStatus();
}

Status RunSLogDet(const Call& call, std::span<const Result> results,
                  const Team& team) {
  const int64_t n = call.arg(0).shape.back();
  const auto [begin, end] = team.Share(results[0].num_elements());
  DispatchFloat(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    for (int64_t i = b; i < e; ++i) {
      const T* x = call.arg(0).data<T>() + i * n * n;
      std::vector<double> a(x, x + n * n);
      double sign = 1;
      double log = 0;
      ForFactors(a, n, [&](double factor) {
        sign = factor < 0 ? -sign : factor == 0 ? 0 : sign;
        log += std::log(std::abs(factor));
      });
      if (std::isnan(log)) sign = log;
      results[0].data<T>()[i] = static_cast<T>(static_cast<MathType<T>>(sign));
      results[1].data<T>()[i] = static_cast<T>(static_cast<MathType<T>>(log));
    }
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"Det", Infer, Run, Work::kSplits},
    {"SLogDet", InferSLogDet, RunSLogDet, Work::kSplits},
};

}  // namespace

std::span<const OpDef> DetOps() { return kOps; }

}  // namespace millrace::models::graph
