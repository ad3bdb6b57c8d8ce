// Systems of linear equations, in f64. ONNX has none of these.
//
//   Solve(a, b) {triangle, unit}   x with a·x = b
//     a         [..., n, n]
//     b         [..., n, k] with a's batch, or [n, k] for every matrix
//     triangle  "": elimination with the largest pivot; "upper", "lower": what
//               lies beyond it is not read; with unit, nor is the diagonal
//   Cholesky(a) {upper}            l with l·lᵀ = a, or its transpose
//
// A matrix that has no answer gives infinities or NaN.
#include <cmath>

#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"

namespace millrace::models::graph {
namespace {

Status SquareMatrices(const Arg& a) {
  RETURN_IF_ERROR(RankAtLeast(a, 2, "the matrices"));
  if (a.shape[a.shape.rank() - 2] == a.shape.back()) return OkStatus();
  return InvalidArgument("matrices of " + a.shape.ToString() +
                         " are not square");
}

Types InferSolve(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 2, 2));
  RETURN_IF_ERROR(FloatOperand(call, 0, "the matrices"));
  RETURN_IF_ERROR(SameType(call, 1, "the right side"));
  RETURN_IF_ERROR(SquareMatrices(call.arg(0)));
  const Shape& a = call.arg(0).shape;
  const Shape& b = call.arg(1).shape;
  Shape out = a;
  if (b.rank() >= 2) out[out.rank() - 1] = b.back();
  if (b.rank() < 2 || b[b.rank() - 2] != a.back() ||
      (b.rank() != 2 && b != out)) {
    return InvalidArgument("matrices of " + a.ToString() +
                           " and a right side of " + b.ToString());
  }
  const std::string_view triangle = call.attrs().Text("triangle", "");
  if (!triangle.empty() && triangle != "upper" && triangle != "lower") {
    return InvalidArgument("triangle must be 'upper', 'lower' or empty");
  }
  return Outputs(call, {{call.arg(0).dtype, out}});
}

class System {
 public:
  System(int64_t n, int64_t k) : n_(n), k_(k) {}

  std::vector<double>& a() { return a_; }
  std::vector<double>& x() { return x_; }

  // Leaves a triangle above the diagonal.
  void Eliminate() {
    for (int64_t i = 0; i < n_; ++i) {
      int64_t pivot = i;
      for (int64_t r = i + 1; r < n_; ++r) {
        if (std::abs(A(r, i)) > std::abs(A(pivot, i))) pivot = r;
      }
      if (pivot != i) {
        for (int64_t c = 0; c < n_; ++c) std::swap(A(pivot, c), A(i, c));
        for (int64_t c = 0; c < k_; ++c) std::swap(X(pivot, c), X(i, c));
      }
      for (int64_t r = i + 1; r < n_; ++r) {
        const double factor = A(r, i) / A(i, i);
        for (int64_t c = i; c < n_; ++c) A(r, c) -= factor * A(i, c);
        for (int64_t c = 0; c < k_; ++c) X(r, c) -= factor * X(i, c);
      }
    }
  }

  void Substitute(bool upper, bool unit) {
    for (int64_t i = 0; i < n_; ++i) {
      const int64_t r = upper ? n_ - 1 - i : i;
      const int64_t first = upper ? r + 1 : 0;
      const int64_t last = upper ? n_ : r;
      for (int64_t c = 0; c < k_; ++c) {
        double left = X(r, c);
        for (int64_t j = first; j < last; ++j) left -= A(r, j) * X(j, c);
        X(r, c) = unit ? left : left / A(r, r);
      }
    }
  }

 private:
  double& A(int64_t r, int64_t c) {
    return a_[static_cast<size_t>(r * n_ + c)];
  }
  double& X(int64_t r, int64_t c) {
    return x_[static_cast<size_t>(r * k_ + c)];
  }

  int64_t n_, k_;
  std::vector<double> a_, x_;
};

Status RunSolve(const Call& call, std::span<const Result> results,
                const Team& team) {
  const Shape& a = call.arg(0).shape;
  const Shape& b = call.arg(1).shape;
  const int64_t n = a.back();
  const int64_t k = b.back();
  const bool shared = b.rank() == 2;
  const std::string_view triangle = call.attrs().Text("triangle", "");
  const bool unit = call.attrs().Int("unit", 0) != 0;
  const auto [begin, end] = team.Share(a.Product(0, a.rank() - 2));
  DispatchFloat(
      call.arg(0).dtype, [&, first = begin, last = end]<typename T>() {
        System system(n, k);
        for (int64_t i = first; i < last; ++i) {
          const T* from = call.arg(0).data<T>() + i * n * n;
          const T* right = call.arg(1).data<T>() + (shared ? 0 : i * n * k);
          system.a().assign(from, from + n * n);
          system.x().assign(right, right + n * k);
          if (triangle.empty()) system.Eliminate();
          system.Substitute(triangle != "lower", unit);
          T* to = results[0].data<T>() + i * n * k;
          for (const double x : system.x()) {
            *to++ = static_cast<T>(static_cast<MathType<T>>(x));
          }
        }
      });
  return OkStatus();
}

Types InferCholesky(const Call& call) {
  RETURN_IF_ERROR(OneFloat(call));
  RETURN_IF_ERROR(SquareMatrices(call.arg(0)));
  return Outputs(call, {{call.arg(0).dtype, call.arg(0).shape}});
}

Status RunCholesky(const Call& call, std::span<const Result> results,
                   const Team& team) {
  const Shape& shape = call.arg(0).shape;
  const int64_t n = shape.back();
  const bool upper = call.attrs().Int("upper", 0) != 0;
  const auto [begin, end] = team.Share(shape.Product(0, shape.rank() - 2));
  DispatchFloat(
      call.arg(0).dtype, [&, first = begin, last = end]<typename T>() {
        for (int64_t i = first; i < last; ++i) {
          const T* from = call.arg(0).data<T>() + i * n * n;
          std::vector<double> l(static_cast<size_t>(n * n));
          const auto at = [&](int64_t r, int64_t c) -> double& {
            return l[static_cast<size_t>(r * n + c)];
          };
          for (int64_t r = 0; r < n; ++r) {
            for (int64_t c = 0; c <= r; ++c) {
              double left = MathType<T>(from[upper ? c * n + r : r * n + c]);
              for (int64_t j = 0; j < c; ++j) left -= at(r, j) * at(c, j);
              at(r, c) = r == c ? std::sqrt(left) : left / at(c, c);
            }
          }
          T* to = results[0].data<T>() + i * n * n;
          for (int64_t r = 0; r < n; ++r) {
            for (int64_t c = 0; c < n; ++c) {
              const double y = upper ? at(c, r) : at(r, c);
              *to++ = static_cast<T>(static_cast<MathType<T>>(y));
            }
          }
        }
      });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"Solve", InferSolve, RunSolve, Work::kSplits},
    {"Cholesky", InferCholesky, RunCholesky, Work::kSplits},
};

}  // namespace

std::span<const OpDef> LinearSystemOps() { return kOps; }

}  // namespace millrace::models::graph
