// Convolutions of all kinds, for the tests of every kind of product.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "tests/backend/dense/dense.h"

namespace millrace::models {

struct ConvShape {
  int64_t height, width, channels, n;
  Window window;
  int64_t out_height, out_width;
  int64_t extra;  // channels of the image beside ours
};

inline const ConvShape kConvShapes[] = {
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

}  // namespace millrace::models
