// Products and convolutions of quantised operands: MatMulInteger,
// QLinearMatMul, QLinearConv. Sums are taken in int32 and wrap around;
// rescaling is in f32.
#include "models/graph/ops/conv.h"
#include "models/graph/ops/matmul.h"
#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"
#include "models/graph/ops/quantize.h"

namespace millrace::models::graph {
namespace {

// Places of the operands: QLinear ones have scales in between.
struct Places {
  size_t b;
  size_t a_zero;
  size_t b_zero;
};
constexpr Places kInteger = {1, 2, 3};
constexpr Places kLinear = {3, 2, 5};

bool IsByte(DType dtype) { return dtype == DType::kU8 || dtype == DType::kI8; }

// One value for all, one for each of the last but one (rows) or the last axis
// (columns), or, for stacks, one for each row or column of each matrix.
Status CheckPerLine(const Arg& arg, const Shape& matrix, bool rows,
                    std::string_view what) {
  if (!arg.given || arg.num_elements() == 1) return OkStatus();
  const int axis = matrix.rank() - (rows ? 2 : 1);
  const int64_t lines = axis >= 0 ? matrix[axis] : 1;
  if (arg.num_elements() == lines ||
      (lines > 0 && matrix.back() > 0 && arg.shape.rank() == matrix.rank() &&
       arg.num_elements() ==
           matrix.num_elements() /
               (rows ? matrix.back() : matrix[matrix.rank() - 2]))) {
    return OkStatus();
  }
  return InvalidArgument(
      std::string(what) + " of shape " + arg.shape.ToString() +
      " does not fit matrices of shape " + matrix.ToString());
}

// The value of line `line` of matrix `matrix`.
template <typename V>
V LineOf(const std::vector<V>& values, int64_t matrix, int64_t lines,
         int64_t line) {
  if (values.size() == 1) return values[0];
  const auto n = static_cast<int64_t>(values.size());
  return values[static_cast<size_t>((matrix * lines + line) % n)];
}

StatusOr<MatMulPlan> PlanBytes(const Call& call, const Places& at) {
  const Arg& a = call.arg(0);
  const Arg& b = call.arg(at.b);
  if (!IsByte(a.dtype) || !IsByte(b.dtype)) {
    return InvalidArgument("operands are " + TypeText(a.dtype, a.shape) +
                           " and " + TypeText(b.dtype, b.shape) +
                           "; INT8 and UINT8 are needed");
  }
  for (const auto& [zero, of] :
       {std::pair(at.a_zero, size_t{0}), std::pair(at.b_zero, at.b)}) {
    const Arg& arg = call.arg(zero);
    if (arg.given && arg.dtype != call.arg(of).dtype) {
      return InvalidArgument("a zero point has another type than its matrix");
    }
    RETURN_IF_ERROR(
        CheckPerLine(arg, call.arg(of).shape, of == 0, "the zero point"));
  }
  ASSIGN_OR_RETURN(MatMulPlan plan, PlanMatMul(a.shape, b.shape));
  ASSIGN_OR_RETURN(plan.out, Shape::Checked(plan.out.dims()));
  return plan;
}

// store(matrix of the result, of a, of b, row, col, sum) for this member's
// part.
template <typename Store>
void Multiply(const Call& call, const Places& at, const MatMulPlan& plan,
              const Team& team, Store&& store) {
  const auto [m, n, k] = plan.size;
  const int64_t count = plan.batch.num_elements();
  const GemmPart part = ShareOf(m, n, team);
  if (part.num_rows <= 0 || part.num_cols <= 0) return;
  const std::vector<int32_t> a_zero = AsInts(call.arg(at.a_zero));
  const std::vector<int32_t> b_zero = AsInts(call.arg(at.b_zero));
  const auto a = Scratch<uint32_t>(part.num_rows * k);
  const auto sums = Scratch<uint32_t>(part.num_rows * part.num_cols);
  for (int64_t i = 0; i < count; ++i) {
    const auto [a_at, b_at] = plan.Operands(i);
    DispatchQuantized(
        call.arg(0).dtype, [&, depth = k, rows = m, ma = a_at]<typename T>() {
          const T* from = call.arg(0).data<T>() + ma * rows * depth;
          for (int64_t r = 0; r < part.num_rows; ++r) {
            const int32_t zero = LineOf(a_zero, ma, rows, part.row + r);
            for (int64_t p = 0; p < depth; ++p) {
              a[static_cast<size_t>(r * depth + p)] = static_cast<uint32_t>(
                  int32_t{from[(part.row + r) * depth + p]} - zero);
            }
          }
        });
    DispatchQuantized(call.arg(at.b).dtype, [&, depth = k, cols = n,
                                             mb = b_at]<typename T>() {
      const T* from = call.arg(at.b).data<T>() + mb * depth * cols;
      const auto pack = [&](int64_t k0, int64_t kc, int64_t n0, int64_t width,
                            int64_t panel_cols, uint32_t* panel) {
        std::fill_n(panel, kc * panel_cols, 0u);
        for (int64_t j = 0; j < width; ++j) {
          const int64_t col = part.col + n0 + j;
          const int32_t zero = LineOf(b_zero, mb, cols, col);
          for (int64_t p = 0; p < kc; ++p) {
            panel[p * panel_cols + j] = static_cast<uint32_t>(
                int32_t{from[(k0 + p) * cols + col]} - zero);
          }
        }
      };
      Gemm<uint32_t>({part.num_rows, part.num_cols, depth}, a.get(), depth,
                     pack, sums.get(), part.num_cols);
    });
    for (int64_t r = 0; r < part.num_rows; ++r) {
      for (int64_t j = 0; j < part.num_cols; ++j) {
        store(i, a_at, b_at, part.row + r, part.col + j,
              static_cast<int32_t>(
                  sums[static_cast<size_t>(r * part.num_cols + j)]));
      }
    }
  }
}

Types InferInteger(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 2, 4));
  ASSIGN_OR_RETURN(const MatMulPlan plan, PlanBytes(call, kInteger));
  return Outputs(call, {{DType::kI32, plan.out}});
}

Status RunInteger(const Call& call, std::span<const Result> results,
                  const Team& team) {
  ASSIGN_OR_RETURN(const MatMulPlan plan, PlanBytes(call, kInteger));
  const int64_t m = plan.size.m;
  const int64_t n = plan.size.n;
  Multiply(
      call, kInteger, plan, team,
      [&](int64_t i, int64_t, int64_t, int64_t row, int64_t col, int32_t sum) {
        results[0].data<int32_t>()[(i * m + row) * n + col] = sum;
      });
  return OkStatus();
}

// Scales are floats and the result's is one number.
Status CheckScales(const Call& call, size_t y_scale) {
  for (const size_t i : {size_t{1}, size_t{4}, y_scale}) {
    RETURN_IF_ERROR(FloatOperand(call, i, "a scale"));
  }
  if (call.arg(y_scale).num_elements() != 1 ||
      call.arg(y_scale + 1).num_elements() != 1 ||
      !IsByte(call.arg(y_scale + 1).dtype)) {
    return InvalidArgument("y has one scale and one zero point of a byte");
  }
  return OkStatus();
}

Types InferLinear(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 8, 8));
  ASSIGN_OR_RETURN(const MatMulPlan plan, PlanBytes(call, kLinear));
  RETURN_IF_ERROR(CheckScales(call, 6));
  RETURN_IF_ERROR(
      CheckPerLine(call.arg(1), call.arg(0).shape, true, "the scale"));
  RETURN_IF_ERROR(
      CheckPerLine(call.arg(4), call.arg(3).shape, false, "the scale"));
  return Outputs(call, {{call.arg(7).dtype, plan.out}});
}

Status RunLinear(const Call& call, std::span<const Result> results,
                 const Team& team) {
  ASSIGN_OR_RETURN(const MatMulPlan plan, PlanBytes(call, kLinear));
  const std::vector<float> a_scale = AsFloats(call.arg(1));
  const std::vector<float> b_scale = AsFloats(call.arg(4));
  const float y_scale = AsFloats(call.arg(6))[0];
  const int32_t zero = AsInts(call.arg(7))[0];
  const int64_t m = plan.size.m;
  const int64_t n = plan.size.n;
  DispatchQuantized(results[0].dtype, [&]<typename Q>() {
    Multiply(call, kLinear, plan, team,
             [&](int64_t i, int64_t a_at, int64_t b_at, int64_t row,
                 int64_t col, int32_t sum) {
               const float scale = LineOf(a_scale, a_at, m, row) *
                                   LineOf(b_scale, b_at, n, col) / y_scale;
               results[0].data<Q>()[(i * m + row) * n + col] =
                   Saturate<Q>(static_cast<float>(sum) * scale, zero);
             });
  });
  return OkStatus();
}

// x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero[, bias INT32]. The
// scale and zero point of w may differ between output channels.
Types InferConv(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 8, 9));
  if (!IsByte(call.arg(0).dtype) || !IsByte(call.arg(3).dtype) ||
      call.arg(2).dtype != call.arg(0).dtype ||
      call.arg(5).dtype != call.arg(3).dtype) {
    return InvalidArgument("x, w and their zero points must be bytes");
  }
  RETURN_IF_ERROR(CheckScales(call, 6));
  ASSIGN_OR_RETURN(
      const ConvPlan plan,
      PlanConv(call.attrs(), call.arg(0).shape, call.arg(3).shape));
  const int64_t channels = call.arg(3).shape[0];
  for (const size_t i : {4, 5}) {
    const int64_t n = call.arg(i).num_elements();
    if (n != 1 && n != channels) {
      return InvalidArgument("w has " + std::to_string(n) +
                             " scales or zero points for " +
                             std::to_string(channels) + " channels");
    }
  }
  if (call.arg(1).num_elements() != 1 || call.arg(2).num_elements() != 1) {
    return InvalidArgument("x has one scale and one zero point");
  }
  RETURN_IF_ERROR(ShapeIs(call, 8, {channels}, "the bias"));
  if (call.arg(8).given && call.arg(8).dtype != DType::kI32) {
    return InvalidArgument("the bias must be INT32");
  }
  return Outputs(call, {{call.arg(7).dtype, plan.out}});
}

Status RunConv(const Call& call, std::span<const Result> results,
               const Team& team) {
  ASSIGN_OR_RETURN(
      const ConvPlan plan,
      PlanConv(call.attrs(), call.arg(0).shape, call.arg(3).shape));
  const std::vector<int32_t> w = AsInts(call.arg(3));
  const std::vector<int32_t> w_zero = AsInts(call.arg(5));
  std::vector<uint32_t> weights(w.size());
  for (size_t i = 0; i < w.size(); ++i) {
    const int64_t channel = static_cast<int64_t>(i) / plan.patch();
    weights[i] = static_cast<uint32_t>(w[i] - LineOf(w_zero, 0, 1, channel));
  }
  const std::vector<float> w_scale = AsFloats(call.arg(4));
  const float x_scale = AsFloats(call.arg(1))[0];
  const float y_scale = AsFloats(call.arg(6))[0];
  const int32_t x_zero = AsInts(call.arg(2))[0];
  const int32_t y_zero = AsInts(call.arg(7))[0];
  const auto* bias = call.arg(8).given ? call.arg(8).data<int32_t>() : nullptr;
  DispatchQuantized(results[0].dtype, [&]<typename Q>() {
    Q* y = results[0].data<Q>();
    const auto store = [&](int64_t channel, int64_t count, int64_t at,
                           const uint32_t* sums) {
      const float scale = x_scale * LineOf(w_scale, 0, 1, channel) / y_scale;
      const uint32_t add =
          bias != nullptr ? static_cast<uint32_t>(bias[channel]) : 0;
      for (int64_t i = 0; i < count; ++i) {
        const auto sum = static_cast<int32_t>(sums[i] + add);
        y[at + i] = Saturate<Q>(static_cast<float>(sum) * scale, y_zero);
      }
    };
    DispatchQuantized(call.arg(0).dtype, [&]<typename T>() {
      const T* x = call.arg(0).data<T>();
      ConvInto<uint32_t>(
          plan, weights.data(),
          [x, x_zero](int64_t i) {
            return static_cast<uint32_t>(int32_t{x[i]} - x_zero);
          },
          store, team);
    });
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"MatMulInteger", InferInteger, RunInteger, Work::kSplits},
    {"QLinearMatMul", InferLinear, RunLinear, Work::kSplits},
    {"QLinearConv", InferConv, RunConv, Work::kSplits},
};

}  // namespace

std::span<const OpDef> QLinearOps() { return kOps; }

}  // namespace millrace::models::graph
