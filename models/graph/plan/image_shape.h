// The sizes of a node on channels-last images, as the dense kernels take them.
// A signal of one dimension is an image of height 1.
#pragma once

#include <cstdint>
#include <string>

#include "models/cpu/graph_int8_kernels.h"
#include "models/cpu/graph_kernels.h"
#include "models/graph/plan/lower.h"

namespace millrace::models::graph {

struct ImageShape {
  int64_t batch = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  int64_t out_height = 0;
  int64_t out_width = 0;
  int64_t outputs = 0;  // channels of the result
  Window window;
  int64_t pad_bottom = 0;
  int64_t pad_right = 0;
  // Values from pixel to pixel, of the image and of the result.
  int64_t ld_x = 0;
  int64_t ld_y = 0;

  int64_t pixels() const { return height * width; }
  int64_t out_pixels() const { return out_height * out_width; }
  int64_t taps() const { return window.kernel_h * window.kernel_w; }
  // Where channel `first` of image `i` of the batch begins.
  int64_t Offset(int64_t i, int64_t first) const {
    return i * pixels() * ld_x + first;
  }
  // Image `i` of the batch at x, from channel `first` on `count` channels.
  Image At(const float* x, int64_t i, int64_t first, int64_t count) const {
    return {.data = x == nullptr ? nullptr : x + Offset(i, first),
            .height = height,
            .width = width,
            .channels = count,
            .ld_row = width * ld_x,
            .ld_pixel = ld_x};
  }
  // Pixels are rows of a product: then the images of a batch are one image, the
  // one below the other, whose weights are read once.
  ImageShape Stacked() const;
  std::string Text() const;  // "8 x 56x56x64 -> 56x56x64, kernel 3x3"
};

// The same of an image of bytes; `zero` is what lies in its padding.
ByteImage ByteImageAt(const ImageShape& s, const uint8_t* x, int64_t i,
                      int64_t first, int64_t count, uint8_t zero);

// Of a node whose first operand and first result are images, which are dense
// where nothing else is known.
ImageShape ImageShapeOf(const Node& node, const Graph& graph);
inline ImageShape ImageShapeOf(const Node& node, const LowerContext& context) {
  ImageShape shape = ImageShapeOf(node, context.graph);
  shape.ld_x = context.distance(node.inputs[0]);
  shape.ld_y = context.distance(node.outputs[0]);
  return shape;
}

}  // namespace millrace::models::graph
