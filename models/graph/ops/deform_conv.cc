// DeformConv (Zhu et al. 2018) in two dimensions: a convolution that reads each
// element of its kernel at an offset of its own, between pixels. Sums are taken
// in f32, of doubles in f64.
//
//   x, weight   as Conv's
//   offset      [n, offset_group * kh * kw * 2, oh, ow], y before x
//   bias        [outputs] or left out
//   mask        [n, offset_group * kh * kw, oh, ow] or left out
#include <cmath>

#include "models/graph/ops/conv.h"
#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"

namespace millrace::models::graph {
namespace {

struct Plan {
  ConvPlan conv;
  int64_t offset_groups = 1;
};

StatusOr<Plan> MakePlan(const Call& call) {
  const Shape& x = call.arg(0).shape;
  if (x.rank() != 4) {
    return Unimplemented("x of shape " + x.ToString() +
                         "; two spatial dimensions are supported");
  }
  Plan plan;
  ASSIGN_OR_RETURN(plan.conv, PlanConv(call.attrs(), x, call.arg(1).shape));
  plan.offset_groups = call.attrs().Int("offset_group", 1);
  if (plan.offset_groups < 1 || x[1] % plan.offset_groups != 0) {
    return InvalidArgument("offset_group is " +
                           std::to_string(plan.offset_groups) + " for " +
                           std::to_string(x[1]) + " channels");
  }
  const int64_t kernel = plan.conv.window.num_kernel() * plan.offset_groups;
  const Shape& out = plan.conv.out;
  RETURN_IF_ERROR(
      ShapeIs(call, 2, {out[0], 2 * kernel, out[2], out[3]}, "offset"));
  RETURN_IF_ERROR(ShapeIs(call, 3, {out[1]}, "the bias"));
  RETURN_IF_ERROR(ShapeIs(call, 4, {out[0], kernel, out[2], out[3]}, "mask"));
  return plan;
}

Types Infer(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 3, 5));
  RETURN_IF_ERROR(FloatOperand(call, 0, "x"));
  for (size_t i = 1; i < 5; ++i) {
    RETURN_IF_ERROR(SameType(call, i, "an operand"));
  }
  ASSIGN_OR_RETURN(const Plan plan, MakePlan(call));
  return Outputs(call, {{call.arg(0).dtype, plan.conv.out}});
}

// The value between pixels; nothing lies outside of the plane.
template <typename M, typename T>
M Between(const T* plane, int64_t height, int64_t width, M y, M x) {
  if (!(y > -1 && y < static_cast<M>(height) && x > -1 &&
        x < static_cast<M>(width))) {
    return 0;
  }
  const auto y0 = static_cast<int64_t>(std::floor(y));
  const auto x0 = static_cast<int64_t>(std::floor(x));
  const M ry = y - static_cast<M>(y0);
  const M rx = x - static_cast<M>(x0);
  const auto at = [&](int64_t r, int64_t c) {
    return r < 0 || r >= height || c < 0 || c >= width
               ? M(0)
               : static_cast<M>(plane[r * width + c]);
  };
  return (1 - ry) * ((1 - rx) * at(y0, x0) + rx * at(y0, x0 + 1)) +
         ry * ((1 - rx) * at(y0 + 1, x0) + rx * at(y0 + 1, x0 + 1));
}

Status Run(const Call& call, std::span<const Result> results,
           const Team& team) {
  ASSIGN_OR_RETURN(const Plan plan, MakePlan(call));
  const ConvPlan& conv = plan.conv;
  const WindowAxis& height = conv.window.axes[1];
  const WindowAxis& width = conv.window.axes[2];
  const int64_t pixels = conv.window.num_out();
  const int64_t kernel = conv.window.num_kernel();
  const int64_t channels = conv.groups * conv.group_in;
  const int64_t per_offset = channels / plan.offset_groups;
  const GemmPart part = ShareOf(conv.group_out, pixels, team);
  if (part.num_rows <= 0 || part.num_cols <= 0) return OkStatus();
  DispatchFloat(call.arg(0).dtype, [&]<typename T>() {
    using M = MathType<T>;
    const std::vector<M> weights = Widened<T>(call.arg(1));
    const std::vector<M> bias = Widened<T>(call.arg(3));
    const auto sums = Scratch<M>(part.num_rows * part.num_cols);
    for (int64_t unit = 0; unit < conv.batch * conv.groups; ++unit) {
      const int64_t n = unit / conv.groups;
      const int64_t group = unit % conv.groups;
      const auto pack = [&](int64_t k0, int64_t kc, int64_t n0, int64_t count,
                            int64_t cols, M* panel) {
        std::fill_n(panel, kc * cols, M(0));
        for (int64_t p = 0; p < kc; ++p) {
          const int64_t channel = group * conv.group_in + (k0 + p) / kernel;
          const int64_t k = (k0 + p) % kernel;
          const int64_t lane =
              (n * plan.offset_groups + channel / per_offset) * kernel + k;
          const T* offset = call.arg(2).data<T>() + lane * 2 * pixels;
          const T* plane = call.arg(0).data<T>() +
                           (n * channels + channel) * conv.window.num_in();
          for (int64_t j = 0; j < count; ++j) {
            const int64_t o = part.col + n0 + j;
            const M y = static_cast<M>(height.Begin(o / width.out) +
                                       k / width.kernel * height.dilation) +
                        static_cast<M>(offset[o]);
            const M x = static_cast<M>(width.Begin(o % width.out) +
                                       k % width.kernel * width.dilation) +
                        static_cast<M>(offset[pixels + o]);
            M v = Between<M>(plane, height.in, width.in, y, x);
            if (call.arg(4).given) {
              v *= static_cast<M>(call.arg(4).data<T>()[lane * pixels + o]);
            }
            panel[p * cols + j] = v;
          }
        }
      };
      Gemm<M>(
          {part.num_rows, part.num_cols, conv.patch()},
          weights.data() + (group * conv.group_out + part.row) * conv.patch(),
          conv.patch(), pack, sums.get(), part.num_cols);
      for (int64_t r = 0; r < part.num_rows; ++r) {
        const int64_t channel = group * conv.group_out + part.row + r;
        const M add = bias.empty() ? M(0) : bias[static_cast<size_t>(channel)];
        T* y = results[0].data<T>() +
               (n * conv.groups * conv.group_out + channel) * pixels + part.col;
        for (int64_t j = 0; j < part.num_cols; ++j) {
          y[j] = static_cast<T>(
              sums[static_cast<size_t>(r * part.num_cols + j)] + add);
        }
      }
    }
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {{"DeformConv", Infer, Run, Work::kSplits}};

}  // namespace

std::span<const OpDef> DeformConvOps() { return kOps; }

}  // namespace millrace::models::graph
