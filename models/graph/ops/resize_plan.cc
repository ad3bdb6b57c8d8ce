#include <algorithm>
#include <cmath>

#include "models/graph/ops/operands.h"
#include "models/graph/ops/resize.h"

namespace millrace::models::graph {
namespace {

bool IsUpsample(const Call& call) { return call.node.Is("Upsample"); }

StatusOr<std::vector<double>> FloatsOf(const Arg& arg, std::string_view what) {
  if (!IsFloat(arg.dtype)) {
    return InvalidArgument(std::string(what) + " is " +
                           TypeText(arg.dtype, arg.shape) + ", not floats");
  }
  if (arg.bytes == nullptr) return NeedsBytes(what);
  return DispatchFloat(arg.dtype, [&]<typename T>() {
    std::vector<double> values;
    for (int64_t i = 0; i < arg.num_elements(); ++i) {
      values.push_back(static_cast<double>(arg.data<T>()[i]));
    }
    return values;
  });
}

// Dimensions that sizes, scales and roi speak of.
StatusOr<std::vector<int>> AxesOf(const Call& call) {
  const int rank = call.arg(0).shape.rank();
  std::vector<int> axes;
  for (const int64_t wanted : call.attrs().Ints("axes")) {
    ASSIGN_OR_RETURN(const int axis, NormalAxis(wanted, rank));
    axes.push_back(axis);
  }
  if (axes.empty()) {
    for (int i = 0; i < rank; ++i) axes.push_back(i);
  }
  return axes;
}

Status PlanSizes(const Call& call, const std::vector<int>& axes,
                 ResizePlan& plan) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> sizes,
                   IntsOf(call.arg(3), "sizes"));
  if (sizes.size() != axes.size()) {
    return InvalidArgument("there are " + std::to_string(sizes.size()) +
                           " sizes for " + std::to_string(axes.size()) +
                           " axes");
  }
  const Shape& in = call.arg(0).shape;
  const std::string_view policy =
      call.attrs().Text("keep_aspect_ratio_policy", "stretch");
  double common = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int axis = axes[i];
    if (sizes[i] < 0 || sizes[i] > int64_t{1} << 40 || in[axis] == 0) {
      return InvalidArgument("size " + std::to_string(sizes[i]) +
                             " of an axis of " + std::to_string(in[axis]));
    }
    plan.out[axis] = sizes[i];
    const auto at = static_cast<size_t>(axis);
    plan.scales[at] =
        static_cast<double>(sizes[i]) / static_cast<double>(in[axis]);
    common = i == 0                   ? plan.scales[at]
             : policy == "not_larger" ? std::min(common, plan.scales[at])
                                      : std::max(common, plan.scales[at]);
  }
  if (policy == "stretch") return OkStatus();
  for (const int axis : axes) {
    plan.scales[static_cast<size_t>(axis)] = common;
    plan.out[axis] = static_cast<int64_t>(
        std::floor(common * static_cast<double>(in[axis]) + 0.5));
  }
  return OkStatus();
}

Status PlanScales(const Call& call, const std::vector<int>& axes,
                  ResizePlan& plan) {
  ASSIGN_OR_RETURN(const std::vector<double> scales,
                   FloatsOf(call.arg(IsUpsample(call) ? 1 : 2), "scales"));
  if (scales.size() != axes.size()) {
    return InvalidArgument("there are " + std::to_string(scales.size()) +
                           " scales for " + std::to_string(axes.size()) +
                           " axes");
  }
  const bool in_doubles =
      call.arg(IsUpsample(call) ? 1 : 2).dtype == DType::kF64;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t in = call.arg(0).shape[axes[i]];
    // In the type of the scales: 10 times 0.7f is 7 in f32.
    const double size =
        in_doubles ? static_cast<double>(in) * scales[i]
                   : static_cast<float>(in) * static_cast<float>(scales[i]);
    if (!(scales[i] > 0) || !(size < 0x1p40)) {
      return InvalidArgument("a scale of " + std::to_string(scales[i]) +
                             " of an axis of " + std::to_string(in));
    }
    plan.out[axes[i]] = static_cast<int64_t>(std::floor(size));
    plan.scales[static_cast<size_t>(axes[i])] = scales[i];
  }
  return OkStatus();
}

// Weights of the neighbours of an element `ratio` behind its left one, the
// first of which lies 1 - taps / 2 from that. Keys 1981 for cubic; antialias
// widens the filter by 1 / scale where the operand is made smaller.
std::vector<double> Filter(bool cubic, double ratio, double scale, double a) {
  const double shrink = std::min(scale, 1.0);
  const auto start =
      static_cast<int64_t>(std::floor((cubic ? -2 : -1) / shrink) + 1);
  std::vector<double> weights;
  double sum = 0;
  for (int64_t i = start; i < 2 - start; ++i) {
    const double x = std::abs((static_cast<double>(i) - ratio) * shrink);
    double w = 0;
    if (!cubic) {
      w = std::max(0.0, 1 - x);
    } else if (x <= 1) {
      w = ((a + 2) * x - (a + 3)) * x * x + 1;
    } else if (x < 2) {
      w = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
    }
    weights.push_back(w);
    sum += w;
  }
  for (double& w : weights) w /= sum;
  return weights;
}

// Where element o of the result lies in the operand.
double Source(std::string_view mode, double o, double in, double out_exact,
              double out, double scale, double begin, double end) {
  if (mode == "align_corners") {
    return out_exact == 1 ? 0 : o * (in - 1) / (out_exact - 1);
  }
  if (mode == "asymmetric") return o / scale;
  if (mode == "tf_crop_and_resize") {
    const double at = out_exact == 1
                          ? (end - begin) * (in - 1) / 2
                          : o * (end - begin) * (in - 1) / (out_exact - 1);
    return at + begin * (in - 1);
  }
  if (mode == "pytorch_half_pixel" && out_exact == 1) return -0.5;
  const double half = (o + 0.5) / scale - 0.5;
  if (mode == "half_pixel_symmetric") {
    return in / 2 * (1 - out / out_exact) + half;
  }
  return half;
}

double Nearest(std::string_view mode, double x) {
  if (mode == "floor") return std::floor(x);
  if (mode == "ceil") return std::ceil(x);
  if (mode == "round_prefer_ceil") return std::floor(x + 0.5);
  return std::ceil(x - 0.5);
}

Status CheckModes(const Call& call) {
  const auto known = [&](std::string_view name, std::string_view otherwise,
                         std::initializer_list<std::string_view> values) {
    const std::string_view value = call.attrs().Text(name, otherwise);
    if (std::find(values.begin(), values.end(), value) != values.end()) {
      return OkStatus();
    }
    return Unimplemented(std::string(name) + " '" + std::string(value) + "'");
  };
  RETURN_IF_ERROR(known("mode", "nearest", {"nearest", "linear", "cubic"}));
  RETURN_IF_ERROR(
      known("coordinate_transformation_mode", "half_pixel",
            {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",
             "align_corners", "asymmetric", "tf_crop_and_resize"}));
  RETURN_IF_ERROR(
      known("nearest_mode", "round_prefer_floor",
            {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}));
  return known("keep_aspect_ratio_policy", "stretch",
               {"stretch", "not_larger", "not_smaller"});
}

}  // namespace

StatusOr<ResizePlan> PlanResize(const Call& call) {
  RETURN_IF_ERROR(CheckModes(call));
  const Shape& in = call.arg(0).shape;
  const auto rank = static_cast<size_t>(in.rank());
  ASSIGN_OR_RETURN(const std::vector<int> axes, AxesOf(call));
  ResizePlan plan{in, std::vector<double>(rank, 1),
                  std::vector<double>(2 * rank, 0)};
  std::fill_n(plan.roi.begin() + in.rank(), rank, 1);
  const auto filled = [&](size_t i) {
    return call.arg(i).given && call.arg(i).num_elements() > 0;
  };
  if (!IsUpsample(call) && filled(3) == filled(2)) {
    return InvalidArgument("either scales or sizes must be given");
  }
  RETURN_IF_ERROR(!IsUpsample(call) && filled(3)
                      ? PlanSizes(call, axes, plan)
                      : PlanScales(call, axes, plan));
  if (call.attrs().Text("coordinate_transformation_mode", "") ==
      "tf_crop_and_resize") {
    ASSIGN_OR_RETURN(const std::vector<double> roi,
                     FloatsOf(call.arg(1), "roi"));
    if (roi.size() != 2 * axes.size()) {
      return InvalidArgument("roi must have two numbers for each axis");
    }
    for (size_t i = 0; i < axes.size(); ++i) {
      const auto axis = static_cast<size_t>(axes[i]);
      plan.roi[axis] = roi[i];
      plan.roi[rank + axis] = roi[axes.size() + i];
    }
  }
  ASSIGN_OR_RETURN(plan.out, Shape::Checked(plan.out.dims()));
  if (in.num_elements() == 0 && plan.out.num_elements() > 0) {
    return InvalidArgument("an empty tensor cannot be made larger");
  }
  return plan;
}

StatusOr<std::vector<ResizeAxis>> ResizeAxes(const Call& call,
                                             const ResizePlan& plan) {
  const Attrs& attrs = call.attrs();
  const Shape& in = call.arg(0).shape;
  const std::string_view mode = attrs.Text("mode", "nearest");
  const bool upsample = IsUpsample(call);
  const std::string_view coordinates =
      upsample ? "asymmetric"
               : attrs.Text("coordinate_transformation_mode", "half_pixel");
  const std::string_view nearest =
      upsample ? "floor" : attrs.Text("nearest_mode", "round_prefer_floor");
  const bool antialias = attrs.Int("antialias", 0) != 0;
  const bool exclude = attrs.Int("exclude_outside", 0) != 0;
  const double a = attrs.Float("cubic_coeff_a", -0.75);
  std::vector<ResizeAxis> axes;
  for (int d = 0; d < in.rank(); ++d) {
    const auto at = static_cast<size_t>(d);
    const double begin = plan.roi[at];
    const double end = plan.roi[static_cast<size_t>(in.rank()) + at];
    if (plan.out[d] == in[d] && plan.scales[at] == 1 && begin == 0 &&
        end == 1) {
      continue;
    }
    ResizeAxis axis;
    axis.axis = d;
    axis.in = in[d];
    axis.out = plan.out[d];
    const double size = static_cast<double>(axis.in);
    const double scale = plan.scales[at];
    const int64_t last = axis.in - 1;
    for (int64_t o = 0; o < axis.out; ++o) {
      const double x =
          Source(coordinates, static_cast<double>(o), size, scale * size,
                 static_cast<double>(axis.out), scale, begin, end);
      axis.outside.push_back(coordinates == "tf_crop_and_resize" &&
                             (x < 0 || x > static_cast<double>(last)));
      // Far outside counts as the edge, before anything becomes an integer.
      const double near = x == x ? std::clamp(x, -size - 4, 2 * size + 4) : 0;
      if (mode == "nearest") {
        axis.index.push_back(std::clamp<int64_t>(
            static_cast<int64_t>(Nearest(nearest, near)), 0, last));
        axis.weight.push_back(1);
        continue;
      }
      const double left = std::ceil(near) - 1;
      std::vector<double> weights =
          Filter(mode == "cubic", near - left, antialias ? scale : 1, a);
      axis.taps = static_cast<int64_t>(weights.size());
      const int64_t first = static_cast<int64_t>(left) + 1 - axis.taps / 2;
      double sum = 0;
      for (int64_t i = 0; i < axis.taps; ++i) {
        double& w = weights[static_cast<size_t>(i)];
        if (exclude && (first + i < 0 || first + i > last)) w = 0;
        sum += w;
        axis.index.push_back(std::clamp<int64_t>(first + i, 0, last));
      }
      for (const double w : weights) {
        axis.weight.push_back(exclude && sum != 0 ? w / sum : w);
      }
    }
    axes.push_back(std::move(axis));
  }
  return axes;
}

}  // namespace millrace::models::graph
