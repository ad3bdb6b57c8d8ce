// Convolutions against double precision and bit for bit against scalar: kernels
// of all kinds, images that are parts of wider ones, ranges of pixels.

#include <algorithm>
#include <cmath>

#include "tests/backend/dense/dense.h"

namespace millrace::models {
namespace {

class Conv : public DenseTest {};

struct Shape {
  int64_t height, width, channels, n;
  Window window;
  int64_t out_height, out_width;
  int64_t extra;  // channels of the image beside ours
};

const Shape kShapes[] = {
    // A pointwise layer, dense, then as a group of a wider image.
    {5, 7, 24, 40, {}, 5, 7, 0},
    {5, 7, 24, 40, {}, 5, 7, 8},
    // 3 x 3, padded, strided, dilated.
    {9, 11, 20, 33, {3, 3, 1, 1, 1, 1, 1, 1}, 9, 11, 0},
    {9, 11, 20, 17, {3, 3, 2, 2, 1, 1, 1, 1}, 5, 6, 0},
    {9, 11, 5, 9, {3, 3, 1, 1, 2, 2, 2, 2}, 9, 11, 3},
    // A stem: few channels, wide kernel.
    {23, 23, 3, 64, {7, 7, 2, 2, 1, 1, 3, 3}, 12, 12, 0},
    // Uneven everything; more padding at the end than at the start.
    {6, 13, 7, 21, {2, 5, 1, 3, 1, 1, 0, 1}, 6, 5, 0},
    // Long k: several blocks; more pixels than a block of them.
    {4, 4, 160, 18, {3, 3, 1, 1, 1, 1, 1, 1}, 4, 4, 0},
    {12, 17, 4, 5, {3, 3, 1, 1, 1, 1, 1, 1}, 12, 17, 0},
    // One dimension, and a kernel that never lies inside.
    {1, 50, 16, 16, {1, 4, 1, 2, 1, 3, 0, 5}, 1, 26, 0},
    {2, 2, 8, 8, {5, 5, 1, 1, 1, 1, 2, 2}, 2, 2, 0},
    // Wide images, read in place: padded, strided, dilated downwards, uneven;
    // a stem, a signal, and one beside other channels, which is not.
    {6, 40, 6, 21, {3, 3, 1, 1, 1, 1, 1, 1}, 6, 40, 0},
    {9, 61, 5, 40, {3, 3, 2, 2, 1, 1, 1, 1}, 5, 31, 0},
    {9, 30, 5, 9, {3, 3, 1, 1, 2, 1, 2, 1}, 9, 30, 0},
    {6, 58, 7, 33, {2, 5, 3, 2, 1, 1, 1, 0}, 3, 29, 0},
    {15, 60, 3, 40, {7, 7, 2, 2, 1, 1, 3, 3}, 8, 30, 0},
    {1, 200, 4, 18, {1, 8, 1, 5, 1, 1, 0, 3}, 1, 40, 0},
    {4, 30, 6, 10, {1, 1, 1, 1, 1, 1, 0, 0}, 4, 30, 2},
    {4, 30, 6, 10, {3, 3, 1, 1, 1, 1, 1, 1}, 4, 30, 2},
};

struct Case {
  Case(const Shape& shape, std::mt19937& rng)
      : s(shape),
        k(s.window.kernel_h * s.window.kernel_w * s.channels),
        pixels(s.out_height * s.out_width),
        ld_pixel(s.channels + s.extra),
        x((s.height * s.width - 1) * ld_pixel + s.channels),
        w(s.n * k),
        bias(s.n),
        residual(pixels * s.n) {
    FillNormal(rng, x);
    FillNormal(rng, w);
    FillNormal(rng, bias);
    FillNormal(rng, residual);
  }

  ConvArgs Args(const DenseTable& t, const Floats& packed, Floats& scratch,
                Floats& y) const {
    return {.x = {x.data(), s.height, s.width, s.channels, s.width * ld_pixel,
                  ld_pixel},
            .window = s.window,
            .out_width = s.out_width,
            .pixel_end = pixels,
            .w = packed.data(),
            .n = s.n,
            .panel_end = Panels(t, s.n),
            .y = y.data(),
            .ld_y = s.n,
            .epilogue = {.bias = bias.data(),
                         .residual = residual.data(),
                         .ld_residual = s.n},
            .scratch = scratch.data()};
  }

  // The sum of an output and of its terms' magnitudes.
  std::pair<double, double> Exact(int64_t pixel, int64_t n) const {
    const Window& v = s.window;
    const int64_t oh = pixel / s.out_width, ow = pixel % s.out_width;
    double sum = double{bias[n]} + residual[pixel * s.n + n];
    double size = std::abs(bias[n]) + std::abs(residual[pixel * s.n + n]);
    for (int64_t i = 0; i < v.kernel_h; ++i) {
      for (int64_t j = 0; j < v.kernel_w; ++j) {
        const int64_t h = oh * v.stride_h - v.pad_top + i * v.dilation_h;
        const int64_t c = ow * v.stride_w - v.pad_left + j * v.dilation_w;
        if (h < 0 || h >= s.height || c < 0 || c >= s.width) continue;
        for (int64_t channel = 0; channel < s.channels; ++channel) {
          const double term =
              double{x[(h * s.width + c) * ld_pixel + channel]} *
              w[((n * v.kernel_h + i) * v.kernel_w + j) * s.channels + channel];
          sum += term;
          size += std::abs(term);
        }
      }
    }
    return {sum, size};
  }

  const Shape& s;
  int64_t k, pixels, ld_pixel;
  Floats x, w, bias, residual;
};

TEST_P(Conv, IsNearDoublePrecisionAndGivesTheBitsOfScalar) {
  std::mt19937 rng(1);
  for (const Shape& shape : kShapes) {
    const Case c(shape, rng);
    Floats packed(table().packed_floats(shape.n, c.k));
    Floats scalar(ScalarTable().packed_floats(shape.n, c.k));
    PackAll(table(), c.w, shape.n, c.k, packed);
    PackAll(ScalarTable(), c.w, shape.n, c.k, scalar);
    Floats none(0), got(c.pixels * shape.n), want(c.pixels * shape.n);
    Floats scratch(
        table().conv_scratch_floats(c.Args(table(), packed, none, got)));
    table().conv(c.Args(table(), packed, scratch, got));
    ScalarTable().conv(c.Args(ScalarTable(), scalar, none, want));
    ASSERT_EQ(Difference(got.data(), want.data(), got.size()), "")
        << &shape - kShapes;
    for (int64_t p = 0; p < c.pixels; ++p) {
      for (int64_t n = 0; n < shape.n; ++n) {
        const auto [sum, size] = c.Exact(p, n);
        // k roundings and two more, each a unit of the magnitudes at most.
        const double bound = static_cast<double>(c.k + 2) * kUnit * size;
        ASSERT_NEAR(got[p * shape.n + n], sum, bound) << &shape - kShapes;
      }
    }
  }
}

TEST_P(Conv, PixelKeepsItsBitsInEveryRange) {
  std::mt19937 rng(2);
  for (const Shape& shape : kShapes) {
    const Case c(shape, rng);
    Floats packed(table().packed_floats(shape.n, c.k));
    PackAll(table(), c.w, shape.n, c.k, packed);
    Floats none(0), whole(c.pixels * shape.n);
    Floats scratch(
        table().conv_scratch_floats(c.Args(table(), packed, none, whole)));
    table().conv(c.Args(table(), packed, scratch, whole));
    for (int64_t step : {1, 3, 13, 97}) {
      Floats y(c.pixels * shape.n, -9.0f);
      ConvArgs args = c.Args(table(), packed, scratch, y);
      for (int64_t p = 0; p < c.pixels; p += step) {
        for (int64_t panel = 0; panel < Panels(table(), shape.n); ++panel) {
          args.pixel_begin = p;
          args.pixel_end = std::min(c.pixels, p + step);
          args.panel_begin = panel;
          args.panel_end = panel + 1;
          table().conv(args);
        }
      }
      ASSERT_EQ(Difference(y.data(), whole.data(), y.size()), "")
          << &shape - kShapes << " by " << step;
    }
  }
}

INSTANTIATE_DENSE_TESTS(Conv);

}  // namespace
}  // namespace millrace::models
