#include "models/graph/cuda/device_window.h"

#include <cstddef>

namespace millrace::models::graph {

using cuda::GraphWindow;

std::optional<GraphWindow> DeviceWindowOf(const NodeWindow& w, const Shape& x,
                                          const Shape& y) {
  const size_t axes = w.kernel.size();
  if (axes < 1 || axes > 3 || x.rank() != static_cast<int>(axes) + 2) {
    return std::nullopt;
  }
  GraphWindow window = {};
  for (size_t i = 0; i < 3; ++i) {
    const bool there = i + axes >= 3;
    const size_t own = there ? i + axes - 3 : 0;
    const int axis = static_cast<int>(own) + 1;
    const auto put = [&](int32_t(&to)[3], int64_t value, int64_t otherwise) {
      to[i] = static_cast<int32_t>(there ? value : otherwise);
      return !there || (value > -(int64_t{1} << 30) && FitsInt32(value));
    };
    if (!put(window.in, x[axis], 1) || !put(window.out, y[axis], 1) ||
        !put(window.kernel, w.kernel[own], 1) ||
        !put(window.stride, w.strides[own], 1) ||
        !put(window.dilation, w.dilations[own], 1) ||
        !put(window.pad, w.pads[own], 0) ||
        !put(window.pad_end, w.pads[own + axes], 0)) {
      return std::nullopt;
    }
  }
  return window;
}

std::string DeviceWindowText(const GraphWindow& w, int64_t batch,
                             int64_t channels, int64_t outputs) {
  const auto sizes = [](const int32_t(&s)[3]) {
    return (s[0] > 1 ? std::to_string(s[0]) + "x" : "") + std::to_string(s[1]) +
           "x" + std::to_string(s[2]);
  };
  return std::to_string(batch) + " x " + sizes(w.in) + "x" +
         std::to_string(channels) + " -> " + sizes(w.out) + "x" +
         std::to_string(outputs) + ", kernel " + sizes(w.kernel);
}

}  // namespace millrace::models::graph
