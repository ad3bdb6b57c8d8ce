// Convolutions of all kinds, for the tests of every kind of product.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tests/backend/conv_shapes.h"
#include "tests/backend/dense/dense.h"

namespace millrace::models {

struct ConvCase {
  ConvCase(const ConvShape& shape, std::mt19937& rng)
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

  ConvArgs Args(const DenseProducts& t, const Floats& packed, Floats& scratch,
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

  // What a pixel sees, 0 in the padding, in the order of the weights.
  std::vector<float> Seen(int64_t pixel) const {
    const Window& v = s.window;
    const int64_t oh = pixel / s.out_width, ow = pixel % s.out_width;
    std::vector<float> seen;
    for (int64_t i = 0; i < v.kernel_h; ++i) {
      for (int64_t j = 0; j < v.kernel_w; ++j) {
        const int64_t h = oh * v.stride_h - v.pad_top + i * v.dilation_h;
        const int64_t c = ow * v.stride_w - v.pad_left + j * v.dilation_w;
        const bool inside = h >= 0 && h < s.height && c >= 0 && c < s.width;
        for (int64_t channel = 0; channel < s.channels; ++channel) {
          seen.push_back(inside ? x[(h * s.width + c) * ld_pixel + channel]
                                : 0.0f);
        }
      }
    }
    return seen;
  }

  // The sum of an output and of its terms' magnitudes.
  std::pair<double, double> Exact(int64_t pixel, int64_t n) const {
    double sum = double{bias[n]} + residual[pixel * s.n + n];
    double size = std::abs(bias[n]) + std::abs(residual[pixel * s.n + n]);
    const std::vector<float> seen = Seen(pixel);
    for (int64_t i = 0; i < k; ++i) {
      const double term = double{seen[static_cast<size_t>(i)]} * w[n * k + i];
      sum += term;
      size += std::abs(term);
    }
    return {sum, size};
  }

  const ConvShape& s;
  int64_t k, pixels, ld_pixel;
  Floats x, w, bias, residual;
};

// Pixels `step` at a time and panels one at a time give the bits of `whole`.
inline void ExpectSameInRanges(const DenseProducts& t, ConvArgs args,
                               int64_t step, const Floats& whole) {
  Floats y(whole.size(), -9.0f);
  args.y = y.data();
  const int64_t pixels = args.pixel_end;
  for (int64_t p = 0; p < pixels; p += step) {
    for (int64_t panel = 0; panel < Panels(t, args.n); ++panel) {
      args.pixel_begin = p;
      args.pixel_end = std::min(pixels, p + step);
      args.panel_begin = panel;
      args.panel_end = panel + 1;
      t.conv(args);
    }
  }
  ASSERT_EQ(Difference(y.data(), whole.data(), y.size()), "") << "by " << step;
}

}  // namespace millrace::models
