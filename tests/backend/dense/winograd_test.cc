// 3 x 3 convolutions by Winograd's way, with the products of the same table:
// against double precision and bit for bit against scalar.

#include "models/cpu/winograd_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/backend/dense/conv_case.h"

namespace millrace::models {
namespace {

class WinogradTest : public DenseTest {};

ConvShape ShapeOf(int64_t height, int64_t width, int64_t channels, int64_t n,
                  int64_t top, int64_t left, int64_t extra) {
  ConvShape s{};
  s.height = height;
  s.width = width;
  s.channels = channels;
  s.n = n;
  s.window = {3, 3, 1, 1, 1, 1, top, left};
  s.out_height = height + 2 * top - 2;
  s.out_width = width + 2 * left - 2;
  s.extra = extra;
  return s;
}

// Odd and even sizes, more tiles than are finished at once, channels that do
// not fill a vector, outputs of several panels and of parts of one.
const ConvShape kShapes[] = {
    ShapeOf(4, 4, 16, 16, 1, 1, 0),  ShapeOf(7, 9, 33, 40, 1, 1, 0),
    ShapeOf(6, 37, 20, 70, 1, 1, 3), ShapeOf(8, 5, 8, 130, 0, 1, 0),
    ShapeOf(5, 8, 64, 5, 1, 0, 1),   ShapeOf(3, 3, 1, 1, 0, 0, 0),
};

struct Layer {
  Layer(const ConvCase& c, const DenseTable& t)
      : packed_each(t.packed_floats(c.s.n, c.s.channels)),
        packed(kWinogradPlanes * packed_each),
        u(kWinogradPlanes * c.s.n * c.s.channels) {
    // From (kh, kw, c) to (c, kh, kw).
    Floats w(c.s.n * c.k);
    for (int64_t n = 0; n < c.s.n; ++n) {
      for (int64_t tap = 0; tap < 9; ++tap) {
        for (int64_t i = 0; i < c.s.channels; ++i) {
          w[(n * c.s.channels + i) * 9 + tap] =
              c.w[n * c.k + tap * c.s.channels + i];
        }
      }
    }
    WinogradWeights(w.data(), c.s.n, c.s.channels, u.data());
    for (int64_t i = 0; i < kWinogradPlanes; ++i) {
      t.pack(u.data() + i * c.s.n * c.s.channels, c.s.n, c.s.channels,
             {.n = c.s.channels, .k = 1}, 0, Panels(t, c.s.n),
             packed.data() + i * packed_each);
    }
  }

  int64_t packed_each;
  Floats packed, u;
};

int64_t Up(int64_t n) { return (n + 1) / 2; }

// Tiles `step` at a time and panels one at a time, or all.
void Convolve(const ConvCase& c, const DenseTable& t, const Layer& layer,
              int64_t step, bool panels_apart, Floats& y) {
  const ConvShape& s = c.s;
  const WinogradKernels kernels = WinogradOf(t.name);
  const int64_t across = Up(s.out_width);
  const int64_t tiles = across * Up(s.out_height);
  const int64_t ld_v = (s.channels + 15) / 16 * 16;
  const int64_t ld_m = (s.n + 15) / 16 * 16;
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (int64_t begin = 0; begin < tiles; begin += step) {
    const int64_t end = std::min(begin + step, tiles);
    // A value that is read before it was written makes the result NaN.
    Floats v(kWinogradPlanes * step * ld_v, kNaN);
    Floats m(kWinogradPlanes * step * ld_m, kNaN);
    kernels.input({.x = {c.x.data(), s.height, s.width, s.channels,
                         s.width * c.ld_pixel, c.ld_pixel},
                   .pad_top = s.window.pad_top,
                   .pad_left = s.window.pad_left,
                   .tiles_across = across,
                   .tile_begin = begin,
                   .tile_end = end,
                   .v = v.data(),
                   .plane = step * ld_v,
                   .ld_v = ld_v});
    const int64_t each = panels_apart ? 1 : Panels(t, s.n);
    for (int64_t panel = 0; panel < Panels(t, s.n); panel += each) {
      for (int64_t i = 0; i < kWinogradPlanes; ++i) {
        t.gemm({.x = v.data() + i * step * ld_v,
                .ld_x = ld_v,
                .row_end = end - begin,
                .w = layer.packed.data() + i * layer.packed_each,
                .n = s.n,
                .k = s.channels,
                .panel_begin = panel,
                .panel_end = panel + each,
                .y = m.data() + i * step * ld_m,
                .ld_y = ld_m});
      }
      kernels.output({.m = m.data(),
                      .plane = step * ld_m,
                      .ld_m = ld_m,
                      .tiles_across = across,
                      .tile_begin = begin,
                      .tile_end = end,
                      .out_height = s.out_height,
                      .out_width = s.out_width,
                      .output_begin = panel * t.panel,
                      .output_end = std::min((panel + each) * t.panel, s.n),
                      .y = y.data(),
                      .ld_y = s.n,
                      .epilogue = {.bias = c.bias.data(),
                                   .residual = c.residual.data(),
                                   .ld_residual = s.n}});
    }
  }
}

TEST_P(WinogradTest, IsNearDoublePrecisionAndGivesTheBitsOfScalar) {
  std::mt19937 rng(1);
  for (const ConvShape& s : kShapes) {
    const ConvCase c(s, rng);
    Floats got(c.pixels * s.n, -9.0f), want(c.pixels * s.n, -9.0f);
    Convolve(c, ScalarTable(), Layer(c, ScalarTable()), 1'000, false, want);
    const Layer layer(c, table());
    Convolve(c, table(), layer, 1'000, false, got);
    ASSERT_EQ(Difference(got.data(), want.data(), got.size()), "")
        << &s - kShapes;
    for (int64_t i = 0; i < got.size(); ++i) {
      const auto [sum, size] = c.Exact(i / s.n, i % s.n);
      ASSERT_NEAR(got[i], sum, 4 * kUnit * size) << &s - kShapes;
    }
    for (const int64_t step : {1, 5}) {
      Floats parts(got.size(), -9.0f);
      Convolve(c, table(), layer, step, true, parts);
      ASSERT_EQ(Difference(parts.data(), got.data(), got.size()), "")
          << &s - kShapes << " by " << step;
    }
  }
}

// u, written out for a kernel of one tap each.
TEST(WinogradWeights, AreThoseOfThePaper) {
  const double g[4][3] = {
      {1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
  for (int row = 0; row < 3; ++row) {
    for (int column = 0; column < 3; ++column) {
      float w[9] = {};
      w[row * 3 + column] = 3;
      float u[kWinogradPlanes];
      WinogradWeights(w, 1, 1, u);
      for (int i = 0; i < 16; ++i) {
        EXPECT_EQ(u[i], 3 * g[i / 4][row] * g[i % 4][column]) << i;
      }
    }
  }
}

INSTANTIATE_DENSE_TESTS(WinogradTest);

}  // namespace
}  // namespace millrace::models
