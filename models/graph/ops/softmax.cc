// Softmax, LogSoftmax and Hardmax along one axis. Sums are taken in f64. A row
// of nothing but -inf is NaN, as in PyTorch.
#include <algorithm>
#include <cmath>

#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"
#include "models/graph/ops/row_rules.h"

namespace millrace::models::graph {
namespace {

enum class Kind : uint8_t { kSoftmax, kLog, kHard };

Types Infer(const Call& call) {
  RETURN_IF_ERROR(OneFloat(call));
  const Shape& shape = call.arg(0).shape;
  // PyTorch takes the softmax of a scalar; ONNX has none.
  if (shape.rank() > 0) {
    RETURN_IF_ERROR(
        NormalAxis(call.attrs().Int("axis", -1), shape.rank()).status());
  }
  return Outputs(call, {{call.arg(0).dtype, shape}});
}

template <Kind kKind, typename M>
void Row(std::vector<M>& row) {
  const auto top = std::max_element(row.begin(), row.end());
  if constexpr (kKind == Kind::kHard) {
    const auto at = top - row.begin();
    std::fill(row.begin(), row.end(), M(0));
    row[static_cast<size_t>(at)] = 1;
    return;
  }
  const M max = *top;
  double sum = 0;  // thousands of small terms beside a large one
  if constexpr (kKind == Kind::kLog) {
    for (const M v : row) sum += std::exp(v - max);
    const M log = static_cast<M>(std::log(sum));
    for (M& v : row) v = v - max - log;
  } else {
    for (M& v : row) {
      v = std::exp(v - max);
      sum += v;
    }
    const M scale = static_cast<M>(1 / sum);
    for (M& v : row) v *= scale;
  }
}

template <Kind kKind>
Status Run(const Call& call, std::span<const Result> results,
           const Team& team) {
  const Shape& shape = results[0].shape;
  int64_t size = 1;
  int64_t inner = 1;
  if (shape.rank() > 0) {
    ASSIGN_OR_RETURN(const int axis,
                     NormalAxis(call.attrs().Int("axis", -1), shape.rank()));
    size = shape[axis];
    inner = shape.Product(axis + 1, shape.rank());
  }
  if (shape.num_elements() == 0) return OkStatus();
  const auto [begin, end] = team.Share(shape.num_elements() / size);
  DispatchFloat(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    std::vector<MathType<T>> row(static_cast<size_t>(size));
    for (int64_t r = b; r < e; ++r) {
      const int64_t at = r / inner * size * inner + r % inner;
      const T* x = call.arg(0).data<T>() + at;
      T* y = results[0].data<T>() + at;
      for (int64_t i = 0; i < size; ++i) {
        row[static_cast<size_t>(i)] = x[i * inner];
      }
      Row<kKind>(row);
      for (int64_t i = 0; i < size; ++i) {
        y[i * inner] = static_cast<T>(row[static_cast<size_t>(i)]);
      }
    }
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"Softmax",
     Infer,
     Run<Kind::kSoftmax>,
     Work::kSplits,
     {.layout = LayoutRule::kSoftmax, .keeps_rows = rows::AxisBehindRows}},
    {"LogSoftmax",
     Infer,
     Run<Kind::kLog>,
     Work::kSplits,
     {.layout = LayoutRule::kSoftmax, .keeps_rows = rows::AxisBehindRows}},
    {"Hardmax", Infer, Run<Kind::kHard>, Work::kSplits},
};

}  // namespace

std::span<const OpDef> SoftmaxOps() { return kOps; }

}  // namespace millrace::models::graph
