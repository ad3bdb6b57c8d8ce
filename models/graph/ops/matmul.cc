// Matrix products. Floats of 16 and 32 bits accumulate in f32, doubles in f64,
// integers wrap around.
#include "models/graph/ops/matmul.h"

#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"
#include "models/graph/ops/row_rules.h"

namespace millrace::models::graph {

StatusOr<MatMulPlan> PlanMatMul(Shape a, Shape b) {
  if (a.rank() == 0 || b.rank() == 0) {
    return InvalidArgument("operands " + a.ToString() + " and " + b.ToString() +
                           " must have a dimension at least");
  }
  const bool row_vector = a.rank() == 1;
  const bool col_vector = b.rank() == 1;
  const std::string shapes = a.ToString() + " and " + b.ToString();
  if (row_vector) a.Insert(0, 1);
  if (col_vector) b.Append(1);
  MatMulPlan plan;
  plan.size = {a[a.rank() - 2], b.back(), a.back()};
  if (b[b.rank() - 2] != plan.size.k) {
    return InvalidArgument("matrices of shapes " + shapes +
                           " cannot be multiplied: the inner sizes differ");
  }
  const Shape a_batch(a.dims().first(static_cast<size_t>(a.rank() - 2)));
  const Shape b_batch(b.dims().first(static_cast<size_t>(b.rank() - 2)));
  ASSIGN_OR_RETURN(plan.batch, Broadcast(a_batch, b_batch));
  plan.a_batch = BroadcastStrides(a_batch, plan.batch);
  plan.b_batch = BroadcastStrides(b_batch, plan.batch);
  plan.out = plan.batch;
  if (!row_vector) plan.out.Append(plan.size.m);
  if (!col_vector) plan.out.Append(plan.size.n);
  // One matrix for all rows: they are one tall product.
  if (b_batch.num_elements() == 1 && plan.batch == a_batch) {
    plan.size.m *= plan.batch.num_elements();
    plan.batch = Shape();
  }
  return plan;
}

std::pair<int64_t, int64_t> MatMulPlan::Operands(int64_t i) const {
  int64_t a = 0;
  int64_t b = 0;
  for (int axis = batch.rank() - 1; axis >= 0; --axis) {
    const int64_t at = i % batch[axis];
    i /= batch[axis];
    a += at * a_batch[axis];
    b += at * b_batch[axis];
  }
  return {a, b};
}

namespace {

Types InferMatMul(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 2, 2));
  RETURN_IF_ERROR(SameType(call, 1, "the right matrix"));
  const DType dtype = call.arg(0).dtype;
  if (dtype == DType::kBool) {
    return InvalidArgument("there are no products of BOOL");
  }
  ASSIGN_OR_RETURN(const MatMulPlan plan,
                   PlanMatMul(call.arg(0).shape, call.arg(1).shape));
  ASSIGN_OR_RETURN(const Shape out, Shape::Checked(plan.out.dims()));
  return Outputs(call, {{dtype, out}});
}

Status RunMatMul(const Call& call, std::span<const Result> results,
                 const Team& team) {
  ASSIGN_OR_RETURN(const MatMulPlan plan,
                   PlanMatMul(call.arg(0).shape, call.arg(1).shape));
  const auto [m, n, k] = plan.size;
  const int64_t count = plan.batch.num_elements();
  // Members take whole matrices where there are enough of them.
  const bool by_matrix = count >= 4 * team.count;
  const auto [begin, end] =
      by_matrix ? team.Share(count) : std::pair<int64_t, int64_t>(0, count);
  const GemmPart part = ShareOf(m, n, by_matrix ? Team{} : team);
  Dispatch(call.arg(0).dtype, [&, rows = m, cols = n, depth = k, b = begin,
                               e = end]<typename T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      for (int64_t i = b; i < e; ++i) {
        const auto [a_at, b_at] = plan.Operands(i);
        MatMulInto<T>(depth,
                      {call.arg(0).data<T>() + a_at * rows * depth, depth, 1},
                      {call.arg(1).data<T>() + b_at * depth * cols, cols, 1},
                      results[0].data<T>() + i * rows * cols, cols, part);
      }
    }
  });
  return OkStatus();
}

// y = x·wᵀ + bias, as torch.nn.functional.linear: x [..., k], weight [n, k],
// bias [n] or left out. ONNX has none.
Types InferLinear(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 2, 3));
  RETURN_IF_ERROR(FloatOperand(call, 0, "x"));
  RETURN_IF_ERROR(SameType(call, 1, "weight"));
  RETURN_IF_ERROR(SameType(call, 2, "bias"));
  RETURN_IF_ERROR(RankAtLeast(call.arg(0), 1, "x"));
  Shape out = call.arg(0).shape;
  const Shape& w = call.arg(1).shape;
  if (w.rank() != 2 || w[1] != out.back()) {
    return InvalidArgument(
        "weight " + w.ToString() + " does not fit operands " + out.ToString() +
        ": it must be [outputs, " + std::to_string(out.back()) + "]");
  }
  out[out.rank() - 1] = w[0];
  RETURN_IF_ERROR(ShapeIs(call, 2, {w[0]}, "bias"));
  ASSIGN_OR_RETURN(out, Shape::Checked(out.dims()));
  return Outputs(call, {{call.arg(0).dtype, out}});
}

Status RunLinear(const Call& call, std::span<const Result> results,
                 const Team& team) {
  const Arg& bias = call.arg(2);
  const int64_t k = call.arg(1).shape[1];
  const int64_t n = call.arg(1).shape[0];
  const int64_t m = n > 0 ? results[0].num_elements() / n : 0;
  const GemmPart part = ShareOf(m, n, team);
  DispatchFloat(call.arg(0).dtype, [&]<typename T>() {
    using M = MathType<T>;
    T* y = results[0].data<T>();
    MatMulInto<T>(k, {call.arg(0).data<T>(), k, 1},
                  {call.arg(1).data<T>(), 1, k}, y, n, part);
    if (!bias.given) return;
    const T* add = bias.data<T>();
    for (int64_t i = part.row; i < part.row + part.num_rows; ++i) {
      for (int64_t j = part.col; j < part.col + part.num_cols; ++j) {
        y[i * n + j] = static_cast<T>(static_cast<M>(y[i * n + j]) +
                                      static_cast<M>(add[j]));
      }
    }
  });
  return OkStatus();
}

struct GemmShapes {
  GemmSize size;
  bool trans_a;
  bool trans_b;
};

StatusOr<GemmShapes> PlanGemm(const Call& call) {
  const Shape& a = call.arg(0).shape;
  const Shape& b = call.arg(1).shape;
  GemmShapes plan{.size = {},
                  .trans_a = call.attrs().Int("transA", 0) != 0,
                  .trans_b = call.attrs().Int("transB", 0) != 0};
  if (a.rank() != 2 || b.rank() != 2 ||
      a[plan.trans_a ? 0 : 1] != b[plan.trans_b ? 1 : 0]) {
    return InvalidArgument("matrices of shapes " + a.ToString() + " and " +
                           b.ToString() + " cannot be multiplied");
  }
  plan.size = {a[plan.trans_a ? 1 : 0], b[plan.trans_b ? 0 : 1],
               a[plan.trans_a ? 0 : 1]};
  return plan;
}

Types InferGemm(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 2, 3));
  RETURN_IF_ERROR(FloatOperand(call, 0, "A"));
  RETURN_IF_ERROR(SameType(call, 1, "B"));
  RETURN_IF_ERROR(SameType(call, 2, "C"));
  ASSIGN_OR_RETURN(const GemmShapes plan, PlanGemm(call));
  const Shape out = {plan.size.m, plan.size.n};
  if (call.arg(2).given) {
    ASSIGN_OR_RETURN(const Shape both, Broadcast(out, call.arg(2).shape));
    if (!(both == out)) {
      return InvalidArgument("C of shape " + call.arg(2).shape.ToString() +
                             " cannot be broadcast to " + out.ToString());
    }
  }
  ASSIGN_OR_RETURN(const Shape shape, Shape::Checked(out.dims()));
  return Outputs(call, {{call.arg(0).dtype, shape}});
}

Status RunGemm(const Call& call, std::span<const Result> results,
               const Team& team) {
  ASSIGN_OR_RETURN(const GemmShapes plan, PlanGemm(call));
  const auto [m, n, k] = plan.size;
  const GemmPart part = ShareOf(m, n, team);
  const Arg& c = call.arg(2);
  const Shape c_strides =
      c.given ? BroadcastStrides(c.shape, results[0].shape) : Shape{0, 0};
  DispatchFloat(call.arg(0).dtype, [&, rows = m, cols = n,
                                    depth = k]<typename T>() {
    using M = MathType<T>;
    const auto alpha = static_cast<M>(call.attrs().Float("alpha", 1));
    const auto beta = static_cast<M>(call.attrs().Float("beta", 1));
    T* y = results[0].data<T>();
    Matrix<T> a{call.arg(0).data<T>(), depth, 1};
    Matrix<T> b{call.arg(1).data<T>(), cols, 1};
    if (plan.trans_a) a = {a.data, 1, rows};
    if (plan.trans_b) b = {b.data, 1, depth};
    MatMulInto<T>(depth, a, b, y, cols, part);
    if (alpha == M(1) && !c.given) return;
    for (int64_t i = part.row; i < part.row + part.num_rows; ++i) {
      for (int64_t j = part.col; j < part.col + part.num_cols; ++j) {
        M sum = alpha * static_cast<M>(y[i * cols + j]);
        if (c.given) {
          sum += beta * static_cast<M>(
                            c.data<T>()[i * c_strides[0] + j * c_strides[1]]);
        }
        y[i * cols + j] = static_cast<T>(sum);
      }
    }
  });
  return OkStatus();
}

// Rows x [s, k] in groups that follow each other, group g ending before row
// ends[g], times matrices w [g, k, n]; 0 behind the last group. ONNX has none.
Types InferGrouped(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 3, 3));
  RETURN_IF_ERROR(FloatOperand(call, 0, "x"));
  RETURN_IF_ERROR(SameType(call, 1, "w"));
  const Shape& x = call.arg(0).shape;
  const Shape& w = call.arg(1).shape;
  const Arg& ends = call.arg(2);
  if (x.rank() != 2 || w.rank() != 3 || w[1] != x[1]) {
    return InvalidArgument("rows " + x.ToString() +
                           " cannot be multiplied by "
                           "groups of " +
                           w.ToString());
  }
  RETURN_IF_ERROR(ShapeIs(call, 2, {w[0]}, "ends"));
  if (ends.dtype != DType::kI32 && ends.dtype != DType::kI64) {
    return InvalidArgument("ends must be INT32 or INT64");
  }
  ASSIGN_OR_RETURN(const Shape out, Shape::Checked({{x[0], w[2]}}));
  return Outputs(call, {{call.arg(0).dtype, out}});
}

Status RunGrouped(const Call& call, std::span<const Result> results,
                  const Team& team) {
  const Shape& w = call.arg(1).shape;
  const Arg& ends = call.arg(2);
  const int64_t rows = call.arg(0).shape[0];
  return DispatchFloat(call.arg(0).dtype, [&]<typename T>() -> Status {
    const int64_t k = w[1];
    const int64_t n = w[2];
    T* y = results[0].data<T>();
    int64_t at = 0;
    for (int64_t g = 0; g < w[0]; ++g) {
      const int64_t end = ends.dtype == DType::kI32 ? ends.data<int32_t>()[g]
                                                    : ends.data<int64_t>()[g];
      if (end < at || end > rows) {
        return InvalidArgument("group " + std::to_string(g) + " ends at row " +
                               std::to_string(end) + " of " +
                               std::to_string(rows));
      }
      MatMulInto<T>(k, {call.arg(0).data<T>() + at * k, k, 1},
                    {call.arg(1).data<T>() + g * k * n, n, 1}, y + at * n, n,
                    ShareOf(end - at, n, team));
      at = end;
    }
    const auto [first, last] = team.Share((rows - at) * n);
    std::fill(y + at * n + first, y + at * n + last, T(0));
    return OkStatus();
  });
}

// Rows of a product by a matrix with outputs along one of its axes.
bool IsPlain(const Node& node) { return node.attrs.Int("transA", 0) == 0; }

constexpr LayerFacts kMatMulLayer = {
    .outputs_axis = [](const Node&) { return 1; }};
constexpr LayerFacts kLinearLayer = {
    .outputs_axis = [](const Node&) { return 0; }};
constexpr LayerFacts kGemmLayer = {
    .outputs_axis =
        [](const Node& node) {
          return node.attrs.Int("transB", 0) != 0 ? 0 : 1;
        },
    .has_int8 = IsPlain};

constexpr OpDef kOps[] = {
    {"MatMul",
     InferMatMul,
     RunMatMul,
     Work::kSplits,
     {.layout = LayoutRule::kMatMul,
      .keeps_rows = rows::StackedProduct,
      .layer = &kMatMulLayer}},
    {"Linear",
     InferLinear,
     RunLinear,
     Work::kSplits,
     {.layout = LayoutRule::kLinear, .layer = &kLinearLayer}},
    {"Gemm",
     InferGemm,
     RunGemm,
     Work::kSplits,
     {.layout = LayoutRule::kGemm, .layer = &kGemmLayer}},
    {"GroupedMatMul", InferGrouped, RunGrouped, Work::kSplits},
};

}  // namespace

std::span<const OpDef> MatMulOps() { return kOps; }

}  // namespace millrace::models::graph
