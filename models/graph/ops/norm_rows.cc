// Normalisations over the last axes of a tensor: each row on its own. Means
// and sums of squares are taken in f64.
#include <cmath>

#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"
#include "models/graph/ops/row_rules.h"

namespace millrace::models::graph {
namespace {

// x as [rows, cols], normalised along cols.
struct Rows {
  int axis = 0;
  int64_t rows = 1;
  int64_t cols = 1;
};

StatusOr<Rows> RowsOf(const Call& call) {
  const Shape& shape = call.arg(0).shape;
  RETURN_IF_ERROR(RankAtLeast(call.arg(0), 1, "the operand"));
  ASSIGN_OR_RETURN(const int axis,
                   NormalAxis(call.attrs().Int("axis", -1), shape.rank()));
  return Rows{axis, shape.Product(0, axis), shape.Product(axis, shape.rank())};
}

Status BroadcastsTo(const Call& call, size_t i, std::string_view what) {
  if (!call.arg(i).given) return OkStatus();
  const Shape& shape = call.arg(0).shape;
  ASSIGN_OR_RETURN(const Shape both, Broadcast(shape, call.arg(i).shape));
  if (both == shape) return OkStatus();
  return InvalidArgument(std::string(what) + " of shape " +
                         call.arg(i).shape.ToString() +
                         " cannot be broadcast to " + shape.ToString());
}

Types Infer(const Call& call, size_t most) {
  RETURN_IF_ERROR(CountOperands(call, 1, most));
  RETURN_IF_ERROR(FloatOperand(call, 0, "the operand"));
  RETURN_IF_ERROR(FloatOperand(call, 1, "scale"));
  RETURN_IF_ERROR(SameType(call, 2, "bias"));
  ASSIGN_OR_RETURN(const Rows rows, RowsOf(call));
  for (size_t i = 1; i < most; ++i) {
    RETURN_IF_ERROR(BroadcastsTo(call, i, i == 1 ? "scale" : "bias"));
  }
  if (call.attrs().Int("stash_type", 1) != 1) {
    return Unimplemented("statistics are kept in FP32 only (stash_type 1)");
  }
  const Shape& shape = call.arg(0).shape;
  Shape reduced = shape;
  for (int i = rows.axis; i < shape.rank(); ++i) reduced[i] = 1;
  // RMSNormalization has the type of its scale, which is x's as a rule.
  const DType out =
      most == 2 && call.arg(1).given ? call.arg(1).dtype : call.arg(0).dtype;
  if (most == 2) return Outputs(call, {{out, shape}});
  return Outputs(
      call, {{out, shape}, {DType::kF32, reduced}, {DType::kF32, reduced}});
}

// Both may lack their scale, which PyTorch allows.
Types InferLayer(const Call& call) { return Infer(call, 3); }
Types InferRms(const Call& call) { return Infer(call, 2); }

// A scale or bias that is the same for all rows has one row of values, else it
// is spread over all of x.
template <typename T>
struct Weights {
  Weights(const Arg& arg, const Shape& x, const Rows& rows) {
    if (!arg.given) return;
    const Shape strides = BroadcastStrides(arg.shape, x);
    for (int i = 0; i < rows.axis; ++i) {
      if (x[i] > 1 && strides[i] != 0) step = rows.cols;
    }
    Shape row = x;
    if (step == 0) {
      for (int i = 0; i < rows.axis; ++i) row[i] = 1;
    }
    values = WidenedTo<T>(arg, row);
  }
  const MathType<T>* Row(int64_t i) const {
    return values.empty() ? nullptr : values.data() + i * step;
  }
  std::vector<MathType<T>> values;
  int64_t step = 0;
};

template <typename M>
M Mean(const std::vector<M>& row) {
  double sum = 0;
  for (const M v : row) sum += v;
  return static_cast<M>(sum / static_cast<double>(row.size()));
}

template <typename M>
M MeanSquare(const std::vector<M>& row, M shift) {
  double sum = 0;
  for (const M v : row) sum += double{v - shift} * double{v - shift};
  return static_cast<M>(sum / static_cast<double>(row.size()));
}

template <bool kCentred>
Status RunRows(const Call& call, std::span<const Result> results,
               const Team& team) {
  ASSIGN_OR_RETURN(const Rows rows, RowsOf(call));
  const auto [begin, end] = team.Share(rows.rows);
  const auto compute = [&, b = begin, e = end]<typename T, typename S>() {
    using M = MathType<T>;
    const Shape& shape = call.arg(0).shape;
    const Weights<S> scale(call.arg(1), shape, rows);
    const Weights<S> bias(kCentred ? call.arg(2) : Arg{}, shape, rows);
    const auto epsilon = static_cast<M>(call.attrs().Float("epsilon", 1e-5));
    const auto stat = [&](size_t i, int64_t row, M value) {
      if (!kCentred || results.size() <= i) return;
      results[i].template data<float>()[row] = static_cast<float>(value);
    };
    std::vector<M> values(static_cast<size_t>(rows.cols));
    for (int64_t i = b; i < e; ++i) {
      const T* x = call.arg(0).data<T>() + i * rows.cols;
      S* y = results[0].data<S>() + i * rows.cols;
      for (int64_t j = 0; j < rows.cols; ++j) {
        values[static_cast<size_t>(j)] = x[j];
      }
      const M mean = kCentred ? Mean(values) : M(0);
      const M inverse = M(1) / std::sqrt(MeanSquare(values, mean) + epsilon);
      stat(1, i, mean);
      stat(2, i, inverse);
      const auto* g = scale.Row(i);
      const auto* c = bias.Row(i);
      for (int64_t j = 0; j < rows.cols; ++j) {
        M v = (values[static_cast<size_t>(j)] - mean) * inverse;
        if (g != nullptr) v *= static_cast<M>(g[j]);
        if (c != nullptr) v += static_cast<M>(c[j]);
        y[j] = static_cast<S>(v);
      }
    }
  };
  DispatchFloat(call.arg(0).dtype, [&]<typename T>() {
    if (results[0].dtype == call.arg(0).dtype) {
      compute.template operator()<T, T>();
    } else {
      DispatchFloat(results[0].dtype,
                    [&]<typename S>() { compute.template operator()<T, S>(); });
    }
  });
  return OkStatus();
}

Types InferLp(const Call& call) {
  RETURN_IF_ERROR(OneFloat(call));
  RETURN_IF_ERROR(RowsOf(call).status());
  const int64_t p = call.attrs().Int("p", 2);
  if (p != 1 && p != 2) {
    return InvalidArgument("p is " + std::to_string(p) + "; it may be 1 or 2");
  }
  return Outputs(call, {{call.arg(0).dtype, call.arg(0).shape}});
}

// x divided by its norm along one axis; 0 where the norm is 0.
Status RunLp(const Call& call, std::span<const Result> results,
             const Team& team) {
  ASSIGN_OR_RETURN(const Rows rows, RowsOf(call));
  const Shape& shape = call.arg(0).shape;
  if (shape.num_elements() == 0) return OkStatus();
  const int64_t size = shape[rows.axis];
  const int64_t inner = rows.cols / size;
  const bool squares = call.attrs().Int("p", 2) == 2;
  const auto [begin, end] = team.Share(shape.num_elements() / size);
  DispatchFloat(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    using M = MathType<T>;
    for (int64_t r = b; r < e; ++r) {
      const int64_t at = r / inner * size * inner + r % inner;
      const T* x = call.arg(0).data<T>() + at;
      T* y = results[0].data<T>() + at;
      M sum = 0;
      for (int64_t i = 0; i < size; ++i) {
        const M v = x[i * inner];
        sum += squares ? v * v : std::abs(v);
      }
      const M norm = squares ? std::sqrt(sum) : sum;
      for (int64_t i = 0; i < size; ++i) {
        y[i * inner] =
            static_cast<T>(norm == 0 ? M(0) : M(x[i * inner]) / norm);
      }
    }
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"LayerNormalization",
     InferLayer,
     RunRows<true>,
     Work::kSplits,
     {.layout = LayoutRule::kLayerNorm, .keeps_rows = rows::AxisBehindRows}},
    {"RMSNormalization",
     InferRms,
     RunRows<false>,
     Work::kSplits,
     {.keeps_rows = rows::AxisBehindRows}},
    {"LpNormalization", InferLp, RunLp, Work::kSplits},
};

}  // namespace

std::span<const OpDef> RowNormOps() { return kOps; }

}  // namespace millrace::models::graph
