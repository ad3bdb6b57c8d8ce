#include "models/graph/ops/window.h"

#include <algorithm>
#include <string>

namespace millrace::models::graph {
namespace {

constexpr int64_t kMost = int64_t{1} << 31;

StatusOr<std::span<const int64_t>> Numbers(const Attrs& attrs,
                                           std::string_view name, size_t count,
                                           int64_t least) {
  const std::vector<int64_t>& list = attrs.Ints(name);
  if (list.empty()) return std::span<const int64_t>();
  if (list.size() != count) {
    return InvalidArgument("attribute " + std::string(name) + " has " +
                           std::to_string(list.size()) + " numbers, not " +
                           std::to_string(count));
  }
  for (const int64_t value : list) {
    if (value < least || value > kMost) {
      return InvalidArgument("attribute " + std::string(name) + " has a " +
                             std::to_string(value) + "; it must be " +
                             std::to_string(least) + " to 2^31");
    }
  }
  return std::span<const int64_t>(list);
}

// The number of windows, or an error when not even one fits.
StatusOr<int64_t> CountWindows(const WindowAxis& axis, bool ceil) {
  const int64_t room = axis.in + axis.pad_begin + axis.pad_end - axis.reach();
  // Rounded up, a window that is cut off by less than a stride counts.
  if (ceil && room < 0 && -room < axis.stride && axis.in > 0) return 1;
  if (room < 0) {
    return InvalidArgument("a window of " + std::to_string(axis.reach()) +
                           " does not fit an axis of " +
                           std::to_string(axis.in) + " elements with pads of " +
                           std::to_string(axis.pad_begin) + " and " +
                           std::to_string(axis.pad_end));
  }
  int64_t count = room / axis.stride + 1;
  if (ceil && room % axis.stride != 0 &&
      // The last window must begin inside of the input or its first padding.
      count * axis.stride < axis.in + axis.pad_begin) {
    ++count;
  }
  return count;
}

}  // namespace

std::pair<int64_t, int64_t> WindowAxis::Inside(int64_t o) const {
  const int64_t begin = Begin(o);
  const int64_t first =
      begin >= 0 ? 0 : std::min(kernel, (-begin + dilation - 1) / dilation);
  const int64_t last =
      begin >= in ? 0 : std::min(kernel, (in - 1 - begin) / dilation + 1);
  return {first, std::max(first, last)};
}

StatusOr<Shape> Window::OutShape(int64_t batch, int64_t channels) const {
  std::vector<int64_t> dims = {batch, channels};
  for (int i = kSpatial - rank; i < kSpatial; ++i) {
    dims.push_back(axes[static_cast<size_t>(i)].out);
  }
  return Shape::Checked(dims);
}

StatusOr<std::array<int64_t, kSpatial>> PerAxis(const Attrs& attrs,
                                                std::string_view name,
                                                int rank) {
  ASSIGN_OR_RETURN(const auto list,
                   Numbers(attrs, name, static_cast<size_t>(rank), 1));
  std::array<int64_t, kSpatial> values = {1, 1, 1};
  std::copy(list.begin(), list.end(), values.end() - rank);
  if (list.empty()) values = {1, 1, 1};
  return values;
}

StatusOr<std::array<int64_t, 2 * kSpatial>> PadsOf(const Attrs& attrs,
                                                   int rank) {
  ASSIGN_OR_RETURN(const auto list,
                   Numbers(attrs, "pads", 2 * static_cast<size_t>(rank), 0));
  std::array<int64_t, 2 * kSpatial> pads = {};
  if (list.empty()) return pads;
  std::copy_n(list.begin(), rank, pads.begin() + kSpatial - rank);
  std::copy_n(list.begin() + rank, rank, pads.end() - rank);
  return pads;
}

StatusOr<Window> MakeWindow(const Attrs& attrs, std::span<const int64_t> in,
                            std::span<const int64_t> kernel) {
  if (in.empty() || in.size() > kSpatial || in.size() != kernel.size()) {
    return InvalidArgument("a window of " + std::to_string(kernel.size()) +
                           " dimensions over " + std::to_string(in.size()) +
                           "; 1 to 3 are supported");
  }
  // Products of these sizes must not overflow.
  RETURN_IF_ERROR(Shape::Checked(in).status());
  RETURN_IF_ERROR(Shape::Checked(kernel).status());
  Window window;
  window.rank = static_cast<int>(in.size());
  ASSIGN_OR_RETURN(const auto strides, PerAxis(attrs, "strides", window.rank));
  ASSIGN_OR_RETURN(const auto dilations,
                   PerAxis(attrs, "dilations", window.rank));
  ASSIGN_OR_RETURN(const auto pads, PadsOf(attrs, window.rank));
  const std::string_view mode = attrs.Text("auto_pad", "NOTSET");
  const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  if (!same && mode != "NOTSET" && mode != "VALID") {
    return InvalidArgument("auto_pad is '" + std::string(mode) +
                           "'; NOTSET, VALID, SAME_UPPER and SAME_LOWER are "
                           "known");
  }
  for (size_t i = 0; i < in.size(); ++i) {
    const size_t at = kSpatial - in.size() + i;
    WindowAxis& axis = window.axes[at];
    if (kernel[i] < 1 || kernel[i] > kMost) {
      return InvalidArgument("a kernel of " + std::to_string(kernel[i]) +
                             " elements; 1 is the least");
    }
    axis = {.in = in[i],
            .kernel = kernel[i],
            .stride = strides[at],
            .dilation = dilations[at],
            .pad_begin = mode == "NOTSET" ? pads[at] : 0,
            .pad_end = mode == "NOTSET" ? pads[kSpatial + at] : 0};
    if (axis.kernel > kMost / axis.dilation) {
      return InvalidArgument("a dilated kernel of more than 2^31 elements");
    }
    if (same) {
      const int64_t out = (axis.in + axis.stride - 1) / axis.stride;
      const int64_t pad = std::max<int64_t>(
          (out - 1) * axis.stride + axis.reach() - axis.in, 0);
      axis.pad_begin = mode == "SAME_UPPER" ? pad / 2 : pad - pad / 2;
      axis.pad_end = pad - axis.pad_begin;
    }
    ASSIGN_OR_RETURN(axis.out,
                     CountWindows(axis, attrs.Int("ceil_mode", 0) != 0));
  }
  RETURN_IF_ERROR(window.OutShape(1, 1).status());
  return window;
}

}  // namespace millrace::models::graph
