#include "models/graph/passes/windows.h"

#include <algorithm>

namespace millrace::models::graph {

NodeWindow WindowOf(const Node& node, const Shape& in, const Shape& out,
                    const Shape& weight) {
  const auto axes = static_cast<size_t>(in.rank() - 2);
  const auto listed = [&](std::string_view name, size_t count, int64_t rest) {
    std::vector<int64_t> list = node.attrs.Ints(name);
    list.resize(count, rest);
    return list;
  };
  NodeWindow window;
  for (int i = 2; i < weight.rank(); ++i) window.kernel.push_back(weight[i]);
  window.strides = listed("strides", axes, 1);
  window.dilations = listed("dilations", axes, 1);
  window.pads = listed("pads", 2 * axes, 0);
  const std::string_view mode = node.attrs.Text("auto_pad", "NOTSET");
  if (mode == "VALID") std::fill(window.pads.begin(), window.pads.end(), 0);
  const bool transposed = node.Is("ConvTranspose");
  const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  const bool sized = transposed && !node.attrs.Ints("output_shape").empty();
  if (!same && !sized) return window;
  const std::vector<int64_t> added = listed("output_padding", axes, 0);
  for (size_t i = 0; i < axes; ++i) {
    const auto axis = static_cast<int>(i) + 2;
    const int64_t reach = (window.kernel[i] - 1) * window.dilations[i] + 1;
    const int64_t total =
        transposed
            ? (in[axis] - 1) * window.strides[i] + added[i] + reach - out[axis]
            : (out[axis] - 1) * window.strides[i] + reach - in[axis];
    const int64_t pad = std::max<int64_t>(total, 0);
    const int64_t less = pad / 2;
    // Where only output_shape is given, the begin has the odd element, too.
    const bool upper = mode == "SAME_UPPER";
    window.pads[i] = upper ? less : pad - less;
    window.pads[i + axes] = upper ? pad - less : less;
  }
  return window;
}

}  // namespace millrace::models::graph
