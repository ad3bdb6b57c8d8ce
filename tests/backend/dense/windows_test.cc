// Depthwise convolutions, pools and column means: against double precision and
// bit for bit against scalar.

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/backend/dense/dense.h"

namespace millrace::models {
namespace {

class Windows : public DenseTest {};

struct Shape {
  int64_t height, width, channels;
  Window window;
  int64_t out_height, out_width;
  int64_t pad_bottom, pad_right;
};

const Shape kShapes[] = {
    {7, 9, 20, {3, 3, 1, 1, 1, 1, 1, 1}, 7, 9, 1, 1},
    {14, 30, 33, {3, 3, 1, 1, 1, 1, 1, 1}, 14, 30, 1, 1},
    {8, 23, 16, {5, 5, 2, 2, 1, 1, 2, 2}, 4, 12, 2, 2},
    {6, 6, 7, {7, 7, 1, 1, 1, 1, 3, 3}, 6, 6, 3, 3},
    {9, 12, 40, {3, 3, 1, 1, 2, 3, 2, 3}, 9, 12, 2, 3},
    // Windows that begin in the image and end beyond its padding.
    {5, 6, 3, {2, 2, 2, 2, 1, 1, 0, 0}, 3, 3, 0, 0},
    {6, 7, 18, {3, 3, 2, 2, 1, 1, 1, 1}, 4, 4, 1, 1},
    {1, 1, 5, {3, 3, 1, 1, 1, 1, 1, 1}, 1, 1, 1, 1},
    {1, 40, 12, {1, 5, 1, 3, 1, 1, 0, 2}, 1, 14, 0, 2},
    // Whole strips of each width of kernel that has a way of its own.
    {6, 25, 37, {5, 5, 1, 1, 1, 1, 2, 2}, 6, 25, 2, 2},
    {7, 31, 16, {3, 3, 2, 2, 1, 1, 1, 1}, 4, 16, 1, 1},
    {8, 43, 9, {5, 5, 2, 2, 1, 1, 1, 1}, 3, 21, 1, 1},
    {9, 26, 35, {7, 7, 1, 1, 1, 1, 3, 3}, 9, 26, 3, 3},
    {1, 50, 24, {1, 9, 1, 1, 1, 1, 0, 4}, 1, 50, 0, 4},
};

// Calls body(tap, x) for every tap of a window that lies in the image.
template <typename Body>
void EachTap(const Shape& s, const Floats& x, int64_t ld, int64_t row,
             int64_t column, int64_t channel, Body body) {
  const Window& w = s.window;
  for (int64_t i = 0; i < w.kernel_h; ++i) {
    for (int64_t j = 0; j < w.kernel_w; ++j) {
      const int64_t h = row * w.stride_h - w.pad_top + i * w.dilation_h;
      const int64_t c = column * w.stride_w - w.pad_left + j * w.dilation_w;
      if (h < 0 || h >= s.height || c < 0 || c >= s.width) continue;
      body(i * w.kernel_w + j, x[(h * s.width + c) * ld + channel]);
    }
  }
}

TEST_P(Windows, DepthwiseIsNearDoublePrecisionAndGivesTheBitsOfScalar) {
  std::mt19937 rng(1);
  for (const Shape& s : kShapes) {
    const int64_t ld = s.channels + 2;
    const int64_t taps = s.window.kernel_h * s.window.kernel_w;
    const int64_t pixels = s.out_height * s.out_width;
    Floats x((s.height * s.width - 1) * ld + s.channels), w(taps * s.channels),
        bias(s.channels);
    FillNormal(rng, x);
    FillNormal(rng, w);
    FillNormal(rng, bias);
    Floats got(pixels * s.channels), want(pixels * s.channels);
    DepthwiseArgs args{
        .x = {x.data(), s.height, s.width, s.channels, s.width * ld, ld},
        .window = s.window,
        .w = w.data(),
        .out_width = s.out_width,
        .row_end = s.out_height,
        .channel_end = s.channels,
        .y = want.data(),
        .ld_y = s.channels,
        .epilogue = {.bias = bias.data(), .f = Unary::kClip, .a = -2, .b = 6}};
    ScalarTable().depthwise(args);
    args.y = got.data();
    for (int64_t row = 0; row < s.out_height; ++row) {
      args.row_begin = row;
      args.row_end = row + 1;
      const int64_t cut = std::min<int64_t>(table().panel, s.channels);
      args.channel_begin = 0;
      args.channel_end = cut;
      table().depthwise(args);
      args.channel_begin = cut;
      args.channel_end = s.channels;
      table().depthwise(args);
    }
    ASSERT_EQ(Difference(got.data(), want.data(), got.size()), "")
        << &s - kShapes;
    for (int64_t i = 0; i < got.size(); ++i) {
      const int64_t channel = i % s.channels, pixel = i / s.channels;
      double sum = bias[channel], size = std::abs(bias[channel]);
      EachTap(s, x, ld, pixel / s.out_width, pixel % s.out_width, channel,
              [&](int64_t tap, double v) {
                sum += v * w[tap * s.channels + channel];
                size += std::abs(v * w[tap * s.channels + channel]);
              });
      sum = std::clamp(sum, -2.0, 6.0);
      // A rounding for each tap and one for the bias.
      ASSERT_NEAR(got[i], sum, static_cast<double>(taps + 1) * kUnit * size);
    }
  }
}

TEST_P(Windows, PoolsAreNearDoublePrecisionAndGiveTheBitsOfScalar) {
  std::mt19937 rng(2);
  for (const Shape& s : kShapes) {
    for (PoolKind kind :
         {PoolKind::kMax, PoolKind::kMean, PoolKind::kMeanPadded}) {
      Floats x(s.height * s.width * s.channels);
      FillNormal(rng, x);
      const int64_t size = s.out_height * s.out_width * s.channels;
      Floats got(size), want(size);
      PoolArgs args{.x = {x.data(), s.height, s.width, s.channels,
                          s.width * s.channels, s.channels},
                    .window = s.window,
                    .kind = kind,
                    .pad_bottom = s.pad_bottom,
                    .pad_right = s.pad_right,
                    .out_width = s.out_width,
                    .row_end = s.out_height,
                    .y = got.data(),
                    .ld_y = s.channels};
      table().pool(args);
      args.y = want.data();
      ScalarTable().pool(args);
      ASSERT_EQ(Difference(got.data(), want.data(), size), "") << &s - kShapes;
      for (int64_t i = 0; i < size; ++i) {
        const int64_t pixel = i / s.channels;
        const int64_t row = pixel / s.out_width, column = pixel % s.out_width;
        double greatest = -std::numeric_limits<double>::infinity();
        double sum = 0, magnitude = 0, count = 0;
        EachTap(s, x, s.channels, row, column, i % s.channels,
                [&](int64_t, double v) {
                  greatest = std::max(greatest, v);
                  sum += v;
                  magnitude += std::abs(v);
                  count += 1;
                });
        if (kind == PoolKind::kMax) {
          ASSERT_EQ(got[i], greatest);
          continue;
        }
        if (kind == PoolKind::kMeanPadded) {
          // As PyTorch counts without dilation, which it has not.
          if (s.window.dilation_h > 1) continue;
          const Window& w = s.window;
          const int64_t h = row * w.stride_h - w.pad_top;
          const int64_t c = column * w.stride_w - w.pad_left;
          count = static_cast<double>(
              (std::min(h + w.kernel_h, s.height + s.pad_bottom) - h) *
              (std::min(c + w.kernel_w, s.width + s.pad_right) - c));
        }
        const double bound = (count + 1) * kUnit * magnitude / count;
        ASSERT_NEAR(got[i], sum / count, bound) << &s - kShapes;
      }
    }
  }
}

TEST_P(Windows, GreatestOfAWindowWithNanIsNan) {
  for (int64_t at = 0; at < 4; ++at) {
    Floats x(4, 1.0f), y(1);
    x[at] = std::numeric_limits<float>::quiet_NaN();
    table().pool({.x = {x.data(), 2, 2, 1, 2, 1},
                  .window = {.kernel_h = 2, .kernel_w = 2},
                  .out_width = 1,
                  .row_end = 1,
                  .y = y.data(),
                  .ld_y = 1});
    EXPECT_TRUE(std::isnan(y[0])) << at;
  }
}

TEST_P(Windows, ColumnMeans) {
  std::mt19937 rng(3);
  for (int64_t rows : {1, 49, 64, 65, 300}) {
    for (int64_t n : {1, 8, 37}) {
      const int64_t ld = n + 4;
      Floats x((rows - 1) * ld + n), got(n), want(n);
      FillNormal(rng, x);
      table().column_means(x.data(), rows, n, ld, got.data());
      ScalarTable().column_means(x.data(), rows, n, ld, want.data());
      ASSERT_EQ(Difference(got.data(), want.data(), n), "");
      for (int64_t c = 0; c < n; ++c) {
        double sum = 0, size = 0;
        for (int64_t r = 0; r < rows; ++r) {
          sum += x[r * ld + c];
          size += std::abs(x[r * ld + c]);
        }
        // 64 roundings in a chain, one for each chain, and the division.
        const double count = static_cast<double>(rows);
        const double bound = (66 + count / 64) * kUnit * size / count;
        ASSERT_NEAR(got[c], sum / count, bound);
      }
    }
  }
}

INSTANTIATE_DENSE_TESTS(Windows);

}  // namespace
}  // namespace millrace::models
