// Det: determinants of the last two dimensions, by elimination with the
// largest pivot, in f64.
#include <cmath>

#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"

namespace millrace::models::graph {
namespace {

Types Infer(const Call& call) {
  RETURN_IF_ERROR(OneFloat(call));
  RETURN_IF_ERROR(RankAtLeast(call.arg(0), 2, "the operand"));
  Shape out = call.arg(0).shape;
  if (out[out.rank() - 2] != out.back()) {
    return InvalidArgument("matrices of " + out.ToString() + " are not square");
  }
  out.Erase(out.rank() - 1);
  out.Erase(out.rank() - 1);
  return Outputs(call, {{call.arg(0).dtype, out}});
}

double Determinant(std::vector<double>& a, int64_t n) {
  const auto at = [&](int64_t row, int64_t col) -> double& {
    return a[static_cast<size_t>(row * n + col)];
  };
  double product = 1;
  for (int64_t i = 0; i < n; ++i) {
    int64_t pivot = i;
    for (int64_t r = i + 1; r < n; ++r) {
      if (std::abs(at(r, i)) > std::abs(at(pivot, i))) pivot = r;
    }
    if (at(pivot, i) == 0) return 0;
    if (pivot != i) {
      for (int64_t c = 0; c < n; ++c) std::swap(at(pivot, c), at(i, c));
      product = -product;
    }
    product *= at(i, i);
    for (int64_t r = i + 1; r < n; ++r) {
      const double factor = at(r, i) / at(i, i);
      for (int64_t c = i; c < n; ++c) at(r, c) -= factor * at(i, c);
    }
  }
  return product;
}

Status Run(const Call& call, std::span<const Result> results,
           const Team& team) {
  const int64_t n = call.arg(0).shape.back();
  const auto [begin, end] = team.Share(results[0].num_elements());
  DispatchFloat(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    for (int64_t i = b; i < e; ++i) {
      const T* x = call.arg(0).data<T>() + i * n * n;
      std::vector<double> a(x, x + n * n);
      results[0].data<T>()[i] =
          static_cast<T>(static_cast<MathType<T>>(Determinant(a, n)));
    }
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {{"Det", Infer, Run, Work::kSplits}};

}  // namespace

std::span<const OpDef> DetOps() { return kOps; }

}  // namespace millrace::models::graph
