#include "models/graph/plan/image_shape.h"

#include <variant>

#include "models/graph/fused_params.h"

namespace millrace::models::graph {

ImageShape ImageShapeOf(const Node& node, const Graph& graph) {
  const Shape& x = graph.value(node.inputs[0]).type->shape;
  const Shape& y = graph.value(node.outputs[0]).type->shape;
  const bool flat = x.rank() == 3;
  const PoolParams* pool = std::get_if<PoolParams>(&node.attrs.fused()->of);
  const NodeWindow& w =
      pool != nullptr ? pool->window : ParamsOf<ConvParams>(node.attrs).window;
  CHECK(w.kernel.size() == static_cast<size_t>(x.rank() - 2),
        "a window fits its image");
  // The number for rows, or for columns, of an image.
  const auto row = [&](const std::vector<int64_t>& list, int64_t otherwise) {
    return flat ? otherwise : list[0];
  };
  const auto column = [&](const std::vector<int64_t>& list) {
    return list[flat ? 0 : 1];
  };
  const size_t axes = w.kernel.size();
  ImageShape shape;
  shape.batch = x[0];
  shape.height = flat ? 1 : x[1];
  shape.width = x[x.rank() - 2];
  shape.channels = x.back();
  shape.out_height = flat ? 1 : y[1];
  shape.out_width = y[y.rank() - 2];
  shape.outputs = y.back();
  shape.window = {.kernel_h = row(w.kernel, 1),
                  .kernel_w = column(w.kernel),
                  .stride_h = row(w.strides, 1),
                  .stride_w = column(w.strides),
                  .dilation_h = row(w.dilations, 1),
                  .dilation_w = column(w.dilations),
                  .pad_top = row(w.pads, 0),
                  .pad_left = column(w.pads)};
  shape.pad_bottom = flat ? 0 : w.pads[axes];
  shape.pad_right = w.pads[2 * axes - 1];
  shape.ld_x = shape.channels;
  shape.ld_y = shape.outputs;
  return shape;
}

ByteImage ByteImageAt(const ImageShape& s, const uint8_t* x, int64_t i,
                      int64_t first, int64_t count, uint8_t zero) {
  return {.data = x + s.Offset(i, first),
          .height = s.height,
          .width = s.width,
          .channels = count,
          .ld_row = s.width * s.ld_x,
          .ld_pixel = s.ld_x,
          .zero = zero};
}

ImageShape ImageShape::Stacked() const {
  const bool rows = taps() == 1 && window.stride_h == 1 &&
                    window.stride_w == 1 && height == out_height &&
                    width == out_width && window.pad_top == 0 &&
                    window.pad_left == 0;
  ImageShape one = *this;
  if (!rows) return one;
  one.batch = 1;
  one.height *= batch;
  one.out_height *= batch;
  return one;
}

std::string ImageShape::Text() const {
  const auto image = [](int64_t h, int64_t w, int64_t c) {
    return std::to_string(h) + "x" + std::to_string(w) + "x" +
           std::to_string(c);
  };
  return std::to_string(batch) + " x " + image(height, width, channels) +
         " -> " + image(out_height, out_width, outputs) + ", kernel " +
         std::to_string(window.kernel_h) + "x" +
         std::to_string(window.kernel_w);
}

}  // namespace millrace::models::graph
