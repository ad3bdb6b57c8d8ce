// MeanVarianceNormalization: mean 0 and variance 1 over any set of axes. Sums
// are taken in f64, since the set may be the whole tensor.
#include <cmath>

#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"

namespace millrace::models::graph {
namespace {

// Of each dimension, whether it is reduced.
StatusOr<std::vector<bool>> Reduced(const Call& call) {
  const Shape& shape = call.arg(0).shape;
  std::vector<int64_t> axes = call.attrs().Ints("axes");
  if (!call.attrs().Has("axes")) axes = {0, 2, 3};
  std::vector<bool> reduced(static_cast<size_t>(shape.rank()));
  for (const int64_t wanted : axes) {
    ASSIGN_OR_RETURN(const int axis, NormalAxis(wanted, shape.rank()));
    reduced[static_cast<size_t>(axis)] = true;
  }
  return reduced;
}

Types Infer(const Call& call) {
  RETURN_IF_ERROR(OneFloat(call));
  RETURN_IF_ERROR(Reduced(call).status());
  return Outputs(call, {{call.arg(0).dtype, call.arg(0).shape}});
}

Status Run(const Call& call, std::span<const Result> results, const Team&) {
  ASSIGN_OR_RETURN(const std::vector<bool> reduced, Reduced(call));
  const Shape& shape = call.arg(0).shape;
  Shape kept = shape;
  for (int i = 0; i < shape.rank(); ++i) {
    if (reduced[static_cast<size_t>(i)]) kept[i] = 1;
  }
  const int64_t groups = kept.num_elements();
  if (shape.num_elements() == 0) return OkStatus();
  const double size =
      static_cast<double>(shape.num_elements()) / static_cast<double>(groups);
  // Operand 0 is each element's group, counted in the kept dimensions.
  const BroadcastWalk walk(shape, {kept});
  DispatchFloat(call.arg(0).dtype, [&]<typename T>() {
    const T* x = call.arg(0).data<T>();
    T* y = results[0].data<T>();
    std::vector<double> mean(static_cast<size_t>(groups));
    std::vector<double> square(static_cast<size_t>(groups));
    const auto each = [&](auto&& body) {
      walk.ForRows(0, walk.num_rows(), [&](const BroadcastRow& row) {
        for (int64_t i = 0; i < row.length; ++i) {
          body(row.out + i, static_cast<size_t>(row.at[0] + i * row.step[0]));
        }
      });
    };
    each([&](int64_t i, size_t group) { mean[group] += double(x[i]); });
    for (double& v : mean) v /= size;
    each([&](int64_t i, size_t group) {
      const double d = double(x[i]) - mean[group];
      square[group] += d * d;
    });
    // The 1e-9 is part of ONNX's definition.
    for (double& v : square) v = std::sqrt(v / size) + 1e-9;
    each([&](int64_t i, size_t group) {
      y[i] = static_cast<T>(static_cast<MathType<T>>(
          (double(x[i]) - mean[group]) / square[group]));
    });
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {{"MeanVarianceNormalization", Infer, Run}};

}  // namespace

std::span<const OpDef> MeanVarianceOps() { return kOps; }

}  // namespace millrace::models::graph
