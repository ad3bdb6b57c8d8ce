// DFT and STFT, computed in double precision. Complex numbers are a last
// dimension of 2, real ones of 1.
#include <complex>

#include "models/graph/ops/fourier.h"
#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"

namespace millrace::models::graph {
namespace {

using Complex = std::complex<double>;

// Operands x [..., 1 or 2], dft_length, axis (-2).
struct DftPlan {
  int axis = 0;
  int64_t length = 0;
  bool inverse = false;
  bool onesided = false;
  Shape out;
};

StatusOr<int64_t> ScalarOf(const Arg& arg, std::string_view what) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> values, IntsOf(arg, what));
  if (values.size() == 1) return values[0];
  return InvalidArgument(std::string(what) + " must be one number");
}

StatusOr<DftPlan> PlanDft(const Call& call) {
  const Shape& x = call.arg(0).shape;
  RETURN_IF_ERROR(RankAtLeast(call.arg(0), 2, "the operand"));
  if (x.back() != 1 && x.back() != 2) {
    return InvalidArgument("the last dimension of " + x.ToString() +
                           " must be 1 or 2");
  }
  DftPlan plan;
  int64_t axis = -2;
  if (call.arg(2).given) {
    ASSIGN_OR_RETURN(axis, ScalarOf(call.arg(2), "axis"));
  }
  ASSIGN_OR_RETURN(plan.axis, NormalAxis(axis, x.rank()));
  if (plan.axis == x.rank() - 1) {
    return InvalidArgument("the last axis holds real and imaginary parts");
  }
  plan.inverse = call.attrs().Int("inverse", 0) != 0;
  plan.onesided = call.attrs().Int("onesided", 0) != 0;
  plan.length =
      plan.inverse && plan.onesided ? 2 * (x[plan.axis] - 1) : x[plan.axis];
  if (call.arg(1).given) {
    ASSIGN_OR_RETURN(plan.length, ScalarOf(call.arg(1), "dft_length"));
  }
  if (plan.length < 1) {
    return InvalidArgument("dft_length is " + std::to_string(plan.length) +
                           "; 1 is the least");
  }
  plan.out = x;
  const bool half = plan.onesided && !plan.inverse;
  plan.out[plan.axis] = half ? plan.length / 2 + 1 : plan.length;
  plan.out[x.rank() - 1] = plan.onesided && plan.inverse ? 1 : 2;
  ASSIGN_OR_RETURN(plan.out, Shape::Checked(plan.out.dims()));
  return plan;
}

Types InferDft(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 1, 3));
  RETURN_IF_ERROR(FloatOperand(call, 0, "the operand"));
  ASSIGN_OR_RETURN(const DftPlan plan, PlanDft(call));
  return Outputs(call, {{call.arg(0).dtype, plan.out}});
}

// Half of a spectrum stands for all of it: the rest is its mirrored conjugate.
void Complete(std::vector<Complex>& spectrum) {
  const size_t n = spectrum.size();
  for (size_t k = n / 2 + 1; k < n; ++k) {
    spectrum[k] = std::conj(spectrum[n - k]);
  }
  spectrum[0] = spectrum[0].real();
  if (n % 2 == 0) spectrum[n / 2] = spectrum[n / 2].real();
}

Status RunDft(const Call& call, std::span<const Result> results,
              const Team& team) {
  ASSIGN_OR_RETURN(const DftPlan plan, PlanDft(call));
  const Shape& x = call.arg(0).shape;
  const int64_t parts = x.back();
  const int64_t out_parts = plan.out.back();
  const int64_t inner = x.Product(plan.axis + 1, x.rank() - 1);
  const int64_t size = x[plan.axis];
  const int64_t out_size = plan.out[plan.axis];
  const auto [begin, end] = team.Share(x.Product(0, plan.axis) * inner);
  DispatchFloat(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    using M = MathType<T>;
    std::vector<Complex> line;
    for (int64_t i = b; i < e; ++i) {
      line.assign(static_cast<size_t>(plan.length), 0);
      const int64_t outer = i / inner;
      for (int64_t j = 0; j < std::min(size, plan.length); ++j) {
        const T* from = call.arg(0).data<T>() +
                        ((outer * size + j) * inner + i % inner) * parts;
        line[static_cast<size_t>(j)] = {double(M(from[0])),
                                        parts == 2 ? double(M(from[1])) : 0};
      }
      if (plan.inverse && plan.onesided) Complete(line);
      Fourier(line, plan.inverse);
      const double scale =
          plan.inverse ? 1 / static_cast<double>(plan.length) : 1;
      for (int64_t j = 0; j < out_size; ++j) {
        const Complex v = line[static_cast<size_t>(j)] * scale;
        T* to = results[0].data<T>() +
                ((outer * out_size + j) * inner + i % inner) * out_parts;
        to[0] = static_cast<T>(static_cast<M>(v.real()));
        if (out_parts == 2) to[1] = static_cast<T>(static_cast<M>(v.imag()));
      }
    }
  });
  return OkStatus();
}

// Operands signal [n, length, 1 or 2] (or [n, length]), frame_step, window,
// frame_length. The result is [n, frames, bins, 2].
struct StftPlan {
  int64_t step = 1;
  int64_t frame = 1;
  int64_t parts = 1;
  Shape out;
};

StatusOr<StftPlan> PlanStft(const Call& call) {
  const Shape& x = call.arg(0).shape;
  StftPlan plan;
  if (x.rank() == 3 && (x[2] == 1 || x[2] == 2)) {
    plan.parts = x[2];
  } else if (x.rank() != 2) {
    return InvalidArgument("a signal of shape " + x.ToString() +
                           " is not [n, length, 1 or 2]");
  }
  ASSIGN_OR_RETURN(plan.step, ScalarOf(call.arg(1), "frame_step"));
  const Arg& window = call.arg(2);
  if (window.given && window.shape.rank() != 1) {
    return InvalidArgument("the window must be a list");
  }
  plan.frame = window.given ? window.shape[0] : x[1];
  if (call.arg(3).given) {
    ASSIGN_OR_RETURN(plan.frame, ScalarOf(call.arg(3), "frame_length"));
  }
  if (plan.step < 1 || plan.frame < 1 || plan.frame > x[1] ||
      (window.given && window.shape[0] > plan.frame)) {
    return InvalidArgument("frames of " + std::to_string(plan.frame) +
                           " elements every " + std::to_string(plan.step) +
                           " of a signal of " + std::to_string(x[1]));
  }
  const bool onesided = call.attrs().Int("onesided", 1) != 0;
  const int64_t dims[] = {x[0], 1 + (x[1] - plan.frame) / plan.step,
                          onesided ? plan.frame / 2 + 1 : plan.frame, 2};
  ASSIGN_OR_RETURN(plan.out, Shape::Checked(dims));
  return plan;
}

Types InferStft(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 2, 4));
  RETURN_IF_ERROR(FloatOperand(call, 0, "the signal"));
  RETURN_IF_ERROR(SameType(call, 2, "the window"));
  ASSIGN_OR_RETURN(const StftPlan plan, PlanStft(call));
  return Outputs(call, {{call.arg(0).dtype, plan.out}});
}

Status RunStft(const Call& call, std::span<const Result> results,
               const Team& team) {
  ASSIGN_OR_RETURN(const StftPlan plan, PlanStft(call));
  const int64_t length = call.arg(0).shape[1];
  const int64_t frames = plan.out[1];
  const int64_t bins = plan.out[2];
  const auto [begin, end] = team.Share(plan.out[0] * frames);
  DispatchFloat(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    using M = MathType<T>;
    const std::vector<M> window = Widened<T>(call.arg(2));
    // A window shorter than the frame weights its middle, as in PyTorch.
    const int64_t left =
        window.empty() ? 0
                       : (plan.frame - static_cast<int64_t>(window.size())) / 2;
    std::vector<Complex> line;
    for (int64_t i = b; i < e; ++i) {
      line.assign(static_cast<size_t>(plan.frame), 0);
      const int64_t start = i / frames * length + i % frames * plan.step;
      for (int64_t j = 0; j < plan.frame; ++j) {
        const T* x = call.arg(0).data<T>() + (start + j) * plan.parts;
        double w = 1;
        if (!window.empty()) {
          const int64_t at = j - left;
          w = at >= 0 && at < static_cast<int64_t>(window.size())
                  ? double(window[static_cast<size_t>(at)])
                  : 0;
        }
        line[static_cast<size_t>(j)] = {
            double(M(x[0])) * w, plan.parts == 2 ? double(M(x[1])) * w : 0};
      }
      Fourier(line, false);
      T* y = results[0].data<T>() + i * bins * 2;
      for (int64_t j = 0; j < bins; ++j) {
        const Complex v = line[static_cast<size_t>(j)];
        y[2 * j] = static_cast<T>(static_cast<M>(v.real()));
        y[2 * j + 1] = static_cast<T>(static_cast<M>(v.imag()));
      }
    }
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"DFT", InferDft, RunDft, Work::kSplits},
    {"STFT", InferStft, RunStft, Work::kSplits},
};

}  // namespace

std::span<const OpDef> SignalOps() { return kOps; }

}  // namespace millrace::models::graph
