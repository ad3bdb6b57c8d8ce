// Pools and arrays of bytes against plain loops.

#include "tests/backend/int8/window_shapes.h"

namespace millrace::models {
namespace {

class Int8Windows : public Int8Test {};

// f(byte or -1 outside, tap) for every tap of an output pixel.
template <typename F>
void ForTaps(const WindowShape& s, const Bytes& x, int64_t oh, int64_t ow,
             int64_t c, F f) {
  const Window& w = s.window;
  for (int64_t i = 0; i < w.kernel_h; ++i) {
    for (int64_t j = 0; j < w.kernel_w; ++j) {
      const int64_t h = oh * w.stride_h - w.pad_top + i * w.dilation_h;
      const int64_t v = ow * w.stride_w - w.pad_left + j * w.dilation_w;
      const bool outside = h < 0 || h >= s.height || v < 0 || v >= s.width;
      f(outside ? -1 : int{x[(h * s.width + v) * s.channels + c]},
        i * w.kernel_w + j);
    }
  }
}

TEST_P(Int8Windows, MaxPoolTakesTheGreatestByteInTheImage) {
  std::mt19937 rng(4);
  for (const WindowShape& s : kWindowShapes) {
    const Bytes x = RandomBytes(rng, s.height * s.width * s.channels);
    const int64_t pixels = s.out_height * s.out_width;
    Bytes y(static_cast<size_t>(pixels * s.channels), 9);
    table().max_pool({.x = {x.data(), s.height, s.width, s.channels,
                            s.width * s.channels, s.channels, 0},
                      .window = s.window,
                      .out_width = s.out_width,
                      .row_end = s.out_height,
                      .y = y.data(),
                      .ld_y = s.channels});
    for (int64_t p = 0; p < pixels; ++p) {
      for (int64_t c = 0; c < s.channels; ++c) {
        int best = 0;
        ForTaps(s, x, p / s.out_width, p % s.out_width, c,
                [&](int byte, int64_t) { best = std::max(best, byte); });
        ASSERT_EQ(int{y[p * s.channels + c]}, best) << &s - kWindowShapes;
      }
    }
  }
}

TEST_P(Int8Windows, ArraysAreQuantisedWithTiesToEvenAndBack) {
  // Ties, values beyond both ends, and no number at all.
  std::vector<float> x = {0.5f,  1.5f,   2.5f,   -0.5f, -1.5f,  1e9f,
                          -1e9f, 254.5f, 1e-30f, -3.0f, 126.5f, 127.5f};
  x.push_back(std::numeric_limits<float>::infinity());
  x.push_back(-std::numeric_limits<float>::infinity());
  std::mt19937 rng(5);
  for (const float v : RandomFloats(rng, 200, 90.0f)) x.push_back(v);
  for (size_t n = 1; n <= x.size(); n += n < 40 ? 1 : 37) {
    for (const int32_t zero : {0, 1, 128, 255}) {
      Bytes y(n);
      const auto count = static_cast<int64_t>(n);
      table().quantise(x.data(), count, 1.0f, zero, y.data());
      std::vector<float> back(n);
      table().dequantise(y.data(), count, 0.25f, zero, back.data());
      for (size_t i = 0; i < n; ++i) {
        ASSERT_EQ(int{y[i]}, int{AsByte(x[i], 1.0f, zero)}) << x[i];
        ASSERT_EQ(back[i], (static_cast<float>(y[i]) - zero) * 0.25f);
      }
    }
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  uint8_t byte = 9;
  table().quantise(&nan, 1, 1.0f, 128, &byte);
  EXPECT_EQ(byte, 0);
}

TEST_P(Int8Windows, LookupTakesEachByteFromTheTable) {
  std::mt19937 rng(6);
  const Bytes table_of = RandomBytes(rng, 256);
  for (const int64_t n : {1, 15, 31, 32, 33, 64, 300}) {
    const Bytes x = RandomBytes(rng, n);
    Bytes y(x.size());
    table().lookup(table_of.data(), x.data(), n, y.data());
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], table_of[x[i]]);
  }
  Bytes all(256);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint8_t>(i);
  table().lookup(table_of.data(), all.data(), 256, all.data());
  EXPECT_EQ(all, table_of);
}

TEST_P(Int8Windows, MixesAreSumsInOrder) {
  std::mt19937 rng(7);
  for (const int64_t n : {1, 15, 32, 37, 130}) {
    for (const int64_t count : {1, 2, 4, 16}) {
      std::vector<Bytes> x;
      std::vector<const uint8_t*> from;
      for (int64_t j = 0; j < count; ++j) x.push_back(RandomBytes(rng, n));
      for (const Bytes& of : x) from.push_back(of.data());
      const std::vector<float> weight = RandomFloats(rng, count, 0.5f);
      Bytes y(static_cast<size_t>(n));
      table().mix({.from = from.data(),
                   .weight = weight.data(),
                   .count = count,
                   .n = n,
                   .x_zero = 77,
                   .scale = 0.8f,
                   .y_zero = 120,
                   .y = y.data()});
      for (size_t i = 0; i < y.size(); ++i) {
        float v = 0;
        for (size_t j = 0; j < x.size(); ++j) {
          v = std::fma(static_cast<float>(x[j][i]) - 77, weight[j], v);
        }
        ASSERT_EQ(int{y[i]}, int{AsByte(v, 0.8f, 120)}) << n << " " << count;
      }
    }
  }
}

TEST_P(Int8Windows, ColumnSumsAreExact) {
  const int64_t rows = 70000;
  const int64_t n = 19;
  const Bytes x(static_cast<size_t>(rows * (n + 2)), 255);
  std::vector<int32_t> sums(static_cast<size_t>(n), -1);
  table().column_sums(x.data(), rows, n, n + 2, sums.data());
  for (const int32_t sum : sums) EXPECT_EQ(sum, 255 * rows);
}

INSTANTIATE_INT8_TESTS(Int8Windows);

}  // namespace
}  // namespace millrace::models
