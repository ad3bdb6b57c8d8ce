// A band of an image with its padding, laid out so that the output pixels of a
// convolution are rows of a product as they lie, a fixed way apart, over the
// ends of output rows, too.
//
// Rows of the image go to as many planes as the kernel moves down by, row r to
// plane r mod stride. A row of a plane has a multiple of stride_w pixels. So
// the next output pixel sees what is stride_w pixels on, and the first one of
// the next output row what is a plane's row on: positions(columns) pixels of
// the output, of which the last ones are computed and dropped.
//
//   stride 1, 3 x 3, 4 columns:   0 a b c d 0      positions  0 1 2 3 - -
//                                 0 e f g h 0                 6 7 8 9 - -
//
// Args are ConvArgs or Int8ConvArgs, whose padding is a zero point. S and From
// are as in dense/seen_by_pixels.h. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/graph_int8_kernels.h"
#include "models/cpu/graph_kernels.h"

namespace millrace::models {
namespace {

template <class S, class From, class Args = ConvArgs>
class ImagePlanes {
 public:
  using E = typename S::E;

  // For output rows [row_begin, row_end), up to `rows` of them.
  ImagePlanes(const Args& a, int64_t rows)
      : a_(a),
        positions_(Positions(a)),
        row_values_(positions_ * a.window.stride_w * a.x.channels),
        plane_rows_(PlaneRows(a, rows)) {}

  // Output columns and those that are dropped.
  static int64_t Positions(const Args& a) {
    const Window& w = a.window;
    const int64_t pixels =
        (a.out_width - 1) * w.stride_w + (w.kernel_w - 1) * w.dilation_w + 1;
    return (pixels + w.stride_w - 1) / w.stride_w;
  }
  // Values of the planes for so many output rows.
  static int64_t Values(const Args& a, int64_t rows) {
    return PlaneRows(a, rows) * a.window.stride_h * Positions(a) *
           a.window.stride_w * a.x.channels;
  }

  int64_t positions() const { return positions_; }
  // Values from position to position.
  int64_t ld() const { return a_.window.stride_w * a_.x.channels; }
  // Where what the first position of the band sees at a tap begins.
  int64_t At(int64_t kh, int64_t kw) const {
    const Window& w = a_.window;
    const int64_t row = kh * w.dilation_h;
    return PlaceOf(row) + kw * w.dilation_w * a_.x.channels;
  }

  // Copies what output rows [begin, end) see.
  void Fill(const From* data, int64_t begin, int64_t end, E* to) const {
    const Window& w = a_.window;
    const int64_t rows =
        (end - 1 - begin) * w.stride_h + (w.kernel_h - 1) * w.dilation_h + 1;
    for (int64_t i = 0; i < rows; ++i) {
      FillRow(data, begin * w.stride_h - w.pad_top + i, to + PlaceOf(i));
    }
  }

 private:
  static int64_t PlaneRows(const Args& a, int64_t rows) {
    const Window& w = a.window;
    const int64_t all =
        (rows - 1) * w.stride_h + (w.kernel_h - 1) * w.dilation_h + 1;
    return (all + w.stride_h - 1) / w.stride_h;
  }
  int64_t PlaceOf(int64_t row) const {
    const int64_t stride = a_.window.stride_h;
    return (row % stride * plane_rows_ + row / stride) * row_values_;
  }

  void FillRow(const From* data, int64_t row, E* to) const {
    const auto& x = a_.x;
    const int64_t c = x.channels;
    if (row < 0 || row >= x.height) {
      Clear(row_values_, to);
      return;
    }
    const int64_t pixels = row_values_ / c;
    const int64_t pad = a_.window.pad_left;
    const int64_t left = pad < pixels ? pad : pixels;
    int64_t inside = x.width;
    if (inside > pixels - left) inside = pixels - left;
    Clear(left * c, to);
    const From* from = data + row * x.ld_row;
    if (x.ld_pixel == c) {
      S::Copy(from, inside * c, to + left * c);
    } else {
      for (int64_t i = 0; i < inside; ++i) {
        S::Copy(from + i * x.ld_pixel, c, to + (left + i) * c);
      }
    }
    Clear((pixels - left - inside) * c, to + (left + inside) * c);
  }
  void Clear(int64_t n, E* to) const {
    __builtin_memset(to, PaddingOf(a_.x), sizeof(E) * n);
  }
  static int PaddingOf(const Image&) { return 0; }
  static int PaddingOf(const ByteImage& x) { return x.zero; }

  const Args& a_;
  const int64_t positions_;   // of an output row
  const int64_t row_values_;  // of a plane's row
  const int64_t plane_rows_;
};

}  // namespace
}  // namespace millrace::models
