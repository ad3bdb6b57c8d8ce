// What prepares spectra: window functions and MelWeightMatrix, computed in
// double precision. Their sizes are values: infer needs the bytes.
#include <cmath>
#include <numbers>

#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"
#include "models/graph/ops/quantize.h"

namespace millrace::models::graph {
namespace {

StatusOr<int64_t> CountOf(const Arg& arg, std::string_view what) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> values, IntsOf(arg, what));
  if (values.size() != 1 || values[0] < 0) {
    return InvalidArgument(std::string(what) +
                           " must be one number, 0 or more");
  }
  return values[0];
}

StatusOr<DType> OutputType(const Call& call) {
  ASSIGN_OR_RETURN(const DType dtype,
                   DTypeOfOnnx(call.attrs().Int("output_datatype", 1)));
  if (IsFloat(dtype)) return dtype;
  return Unimplemented("a window of " + std::string(DTypeName(dtype)));
}

Types InferWindow(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 1, 1));
  ASSIGN_OR_RETURN(const DType dtype, OutputType(call));
  ASSIGN_OR_RETURN(const int64_t size, CountOf(call.arg(0), "the size"));
  ASSIGN_OR_RETURN(const Shape out, Shape::Checked({&size, 1}));
  return Outputs(call, {{dtype, out}});
}

// a0 - a1 cos(2 pi n / N) + a2 cos(4 pi n / N)
struct Cosines {
  double a0;
  double a1;
  double a2;
};
constexpr Cosines kHann = {0.5, 0.5, 0};
constexpr Cosines kHamming = {25.0 / 46, 21.0 / 46, 0};
constexpr Cosines kBlackman = {0.42, 0.5, 0.08};

template <const Cosines& kWindow>
Status RunWindow(const Call& call, std::span<const Result> results,
                 const Team&) {
  const int64_t size = results[0].num_elements();
  const bool periodic = call.attrs().Int("periodic", 1) != 0;
  const double turn =
      2 * std::numbers::pi /
      static_cast<double>(std::max<int64_t>(periodic ? size : size - 1, 1));
  DispatchFloat(results[0].dtype, [&]<typename T>() {
    for (int64_t i = 0; i < size; ++i) {
      const double x = turn * static_cast<double>(i);
      // One element is a window of 1.
      const double w = size == 1 ? 1
                                 : kWindow.a0 - kWindow.a1 * std::cos(x) +
                                       kWindow.a2 * std::cos(2 * x);
      results[0].data<T>()[i] = static_cast<T>(static_cast<MathType<T>>(w));
    }
  });
  return OkStatus();
}

// Operands num_mel_bins, dft_length, sample_rate, lower_edge_hertz,
// upper_edge_hertz. The result is [dft_length / 2 + 1, num_mel_bins].
Types InferMel(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 5, 5));
  ASSIGN_OR_RETURN(const DType dtype, OutputType(call));
  ASSIGN_OR_RETURN(const int64_t bins, CountOf(call.arg(0), "num_mel_bins"));
  ASSIGN_OR_RETURN(const int64_t length, CountOf(call.arg(1), "dft_length"));
  RETURN_IF_ERROR(FloatOperand(call, 3, "lower_edge_hertz"));
  RETURN_IF_ERROR(FloatOperand(call, 4, "upper_edge_hertz"));
  if (call.arg(3).num_elements() != 1 || call.arg(4).num_elements() != 1) {
    return InvalidArgument("the edges are one number each");
  }
  const int64_t dims[] = {length / 2 + 1, bins};
  ASSIGN_OR_RETURN(const Shape out, Shape::Checked(dims));
  return Outputs(call, {{dtype, out}});
}

Status RunMel(const Call& call, std::span<const Result> results, const Team&) {
  ASSIGN_OR_RETURN(const int64_t length, CountOf(call.arg(1), "dft_length"));
  ASSIGN_OR_RETURN(const int64_t rate, CountOf(call.arg(2), "sample_rate"));
  const int64_t bins = results[0].shape[1];
  const int64_t rows = results[0].shape[0];
  const auto mel = [](double hertz) {
    return 2595 * std::log10(1 + hertz / 700);
  };
  const double low = mel(double{AsFloats(call.arg(3))[0]});
  const double high = mel(double{AsFloats(call.arg(4))[0]});
  const double step = (high - low) / static_cast<double>(bins + 2);
  std::vector<int64_t> edge;
  for (int64_t i = 0; i < bins + 2; ++i) {
    const double hertz =
        700 * (std::pow(10, (low + static_cast<double>(i) * step) / 2595) - 1);
    const double at = std::floor(static_cast<double>(length + 1) * hertz /
                                 static_cast<double>(rate));
    if (!(at >= 0 && at < static_cast<double>(rows))) {
      return OutOfRange("a mel edge of " + std::to_string(hertz) +
                        " Hz lies outside of the spectrum of a sample rate "
                        "of " +
                        std::to_string(rate) + " Hz");
    }
    edge.push_back(static_cast<int64_t>(at));
  }
  DispatchFloat(results[0].dtype, [&]<typename T>() {
    T* y = results[0].data<T>();
    std::fill_n(y, rows * bins, static_cast<T>(MathType<T>(0)));
    const auto set = [&](int64_t row, int64_t bin, double value) {
      y[row * bins + bin] = static_cast<T>(static_cast<MathType<T>>(value));
    };
    for (int64_t i = 0; i < bins; ++i) {
      const auto at = static_cast<size_t>(i);
      const int64_t left = edge[at];
      const int64_t centre = edge[at + 1];
      const int64_t right = edge[at + 2];
      if (centre == left) set(centre, i, 1);
      for (int64_t j = left; centre > left && j <= centre; ++j) {
        set(j, i, double(j - left) / double(centre - left));
      }
      for (int64_t j = centre; j < right; ++j) {
        set(j, i, double(right - j) / double(right - centre));
      }
    }
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"HannWindow", InferWindow, RunWindow<kHann>},
    {"HammingWindow", InferWindow, RunWindow<kHamming>},
    {"BlackmanWindow", InferWindow, RunWindow<kBlackman>},
    {"MelWeightMatrix", InferMel, RunMel},
};

}  // namespace

std::span<const OpDef> WindowOps() { return kOps; }

}  // namespace millrace::models::graph
