// Norms, softmax and reductions: against double precision with derived bounds
// and bit for bit against scalar, for lengths that leave partial vectors.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "tests/backend/dense/dense.h"

namespace millrace::models {
namespace {

class Rows : public DenseTest {};

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int64_t kLengths[] = {1,  2,  7,  15, 16, 17,  31,  32,
                                33, 47, 64, 77, 96, 100, 384, 771};
constexpr int64_t kRows = 5;

// Roundings on the way through the tree: 32 lanes, then five levels.
double TreeUnits(int64_t n) { return static_cast<double>(n / 32 + 7) * kUnit; }

TEST_P(Rows, LayerNorm) {
  std::mt19937 rng(1);
  for (int64_t n : kLengths) {
    const int64_t ld = n + 3;
    Floats x(kRows * ld), weight(n), bias(n), got(kRows * n), want(kRows * n);
    FillNormal(rng, x);
    for (int64_t i = 0; i < x.size(); ++i) x[i] += 3;
    FillNormal(rng, weight);
    FillNormal(rng, bias);
    NormArgs args{.x = x.data(),
                  .ld_x = ld,
                  .row_end = kRows,
                  .n = n,
                  .weight = weight.data(),
                  .bias = bias.data(),
                  .eps = 1e-5f,
                  .y = want.data(),
                  .ld_y = n};
    ScalarTable().layer_norm(args);
    args.y = got.data();
    for (int64_t row = kRows - 1; row >= 0; --row) {
      args.row_begin = row;
      args.row_end = row + 1;
      table().layer_norm(args);
    }
    ASSERT_EQ(Difference(got.data(), want.data(), got.size()), "") << n;
    for (int64_t row = 0; row < kRows; ++row) {
      const float* v = x.data() + row * ld;
      double mean = 0, size = 0, squares = 0;
      for (int64_t i = 0; i < n; ++i) mean += v[i] / static_cast<double>(n);
      for (int64_t i = 0; i < n; ++i) {
        squares += (v[i] - mean) * (v[i] - mean) / static_cast<double>(n);
        size += std::abs(v[i]) / static_cast<double>(n);
      }
      const double r = 1 / std::sqrt(squares + double{1e-5f});
      // The mean is off by the tree of all; what it moves a value by, r
      // magnifies. Then r's own error: half the tree's, and that of the mean
      // where the spread is small.
      const double shift = (TreeUnits(n) + kUnit) * size * r;
      for (int64_t i = 0; i < n; ++i) {
        const double scaled = (v[i] - mean) * r;
        const double bound =
            std::abs(weight[i]) *
                (shift * (1 + scaled * scaled + shift) +
                 std::abs(scaled) * (TreeUnits(n) + 6 * kUnit)) +
            2 * kUnit * (std::abs(scaled * weight[i]) + std::abs(bias[i]));
        ASSERT_NEAR(got[row * n + i], scaled * weight[i] + bias[i], bound) << n;
      }
    }
  }
}

TEST_P(Rows, RmsNormInPlaceWithoutWeights) {
  std::mt19937 rng(2);
  for (int64_t n : kLengths) {
    Floats x(n), got(n), want(n);
    FillNormal(rng, x);
    NormArgs args{
        .x = x.data(), .row_end = 1, .n = n, .eps = 1e-6f, .y = want.data()};
    ScalarTable().rms_norm(args);
    std::copy_n(x.data(), n, got.data());
    args.x = args.y = got.data();
    table().rms_norm(args);
    ASSERT_EQ(Difference(got.data(), want.data(), n), "") << n;
    double squares = 0;
    for (int64_t i = 0; i < n; ++i) squares += double{x[i]} * x[i];
    const double r =
        1 / std::sqrt(squares / static_cast<double>(n) + double{1e-6f});
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_NEAR(got[i], x[i] * r,
                  std::abs(x[i] * r) * (TreeUnits(n) / 2 + 6 * kUnit));
    }
  }
}

TEST_P(Rows, GroupNorm) {
  std::mt19937 rng(3);
  for (auto [channels, groups] : {std::pair<int64_t, int64_t>{24, 3},
                                  {40, 1},
                                  {6, 6},
                                  {35, 5},
                                  {37, 37}}) {
    const int64_t pixels = 13, width = channels / groups;
    Floats x(pixels * channels), weight(channels), bias(channels);
    FillNormal(rng, x);
    FillNormal(rng, weight);
    FillNormal(rng, bias);
    Floats got(x.size()), want(x.size());
    GroupNormArgs args{.x = x.data(),
                       .ld_x = channels,
                       .pixels = pixels,
                       .channels = channels,
                       .groups = groups,
                       .group_end = groups,
                       .weight = weight.data(),
                       .bias = bias.data(),
                       .eps = 1e-5f,
                       .y = want.data(),
                       .ld_y = channels};
    ScalarTable().group_norm(args);
    args.y = got.data();
    for (int64_t group = 0; group < groups; ++group) {
      args.group_begin = group;
      args.group_end = group + 1;
      table().group_norm(args);
    }
    ASSERT_EQ(Difference(got.data(), want.data(), got.size()), "");
    args.group_begin = 0;
    table().group_norm(args);
    ASSERT_EQ(Difference(got.data(), want.data(), got.size()), "");
    for (int64_t group = 0; group < groups; ++group) {
      double mean = 0, squares = 0;
      const double count = static_cast<double>(width * pixels);
      const auto each = [&](auto body) {
        for (int64_t p = 0; p < pixels; ++p) {
          for (int64_t i = 0; i < width; ++i) {
            body(p * channels + group * width + i, group * width + i);
          }
        }
      };
      each([&](int64_t at, int64_t) { mean += x[at] / count; });
      each([&](int64_t at, int64_t) {
        squares += (x[at] - mean) * (x[at] - mean) / count;
      });
      const double r = 1 / std::sqrt(squares + double{1e-5f});
      each([&](int64_t at, int64_t c) {
        // Chains of 13 pixels and trees: 30 roundings cover them.
        const double value = (x[at] - mean) * r * weight[c] + bias[c];
        ASSERT_NEAR(got[at], value,
                    30 * kUnit * (1 + std::abs(x[at] * r)) *
                        (std::abs(weight[c]) + std::abs(bias[c])));
      });
    }
  }
}

TEST_P(Rows, Softmax) {
  std::mt19937 rng(4);
  for (int64_t n : kLengths) {
    for (bool logarithm : {false, true}) {
      for (int64_t ld_mask : {int64_t{-1}, int64_t{0}, n}) {
        Floats x(kRows * n), mask(kRows * n), got(kRows * n), want(kRows * n);
        FillNormal(rng, x, 4.0f);
        FillNormal(rng, mask);
        if (n > 3) mask[1] = -kInf;
        SoftmaxArgs args{.x = x.data(),
                         .ld_x = n,
                         .row_end = kRows,
                         .n = n,
                         .logarithm = logarithm,
                         .y = want.data(),
                         .ld_y = n};
        if (ld_mask >= 0) {
          args.mask = mask.data();
          args.ld_mask = ld_mask;
        }
        ScalarTable().softmax(args);
        std::copy_n(x.data(), x.size(), got.data());
        args.x = args.y = got.data();
        table().softmax(args);
        ASSERT_EQ(Difference(got.data(), want.data(), got.size()), "") << n;
        for (int64_t row = 0; row < kRows; ++row) {
          const auto value = [&](int64_t i) -> double {
            // The sum with the mask is rounded.
            return ld_mask < 0 ? x[row * n + i]
                               : x[row * n + i] + mask[row * ld_mask + i];
          };
          double m = -kInf, sum = 0;
          for (int64_t i = 0; i < n; ++i) m = std::max(m, value(i));
          for (int64_t i = 0; i < n; ++i) sum += std::exp(value(i) - m);
          for (int64_t i = 0; i < n; ++i) {
            const double v = value(i) - m;
            // v is rounded, exp good to 4 units, then the tree, the quotient
            // and the product.
            const double units =
                TreeUnits(n) + (std::min(std::abs(v), 100.0) + 7) * kUnit;
            if (!logarithm) {
              const double p = std::exp(v) / sum;
              ASSERT_NEAR(got[row * n + i], p, p * units + 1e-45) << n;
            } else if (std::isinf(v)) {
              ASSERT_EQ(got[row * n + i], -kInf);
            } else {
              ASSERT_NEAR(got[row * n + i], v - std::log(sum),
                          units + 3 * kUnit * (std::abs(v) + std::log(sum)));
            }
          }
        }
      }
    }
  }
}

// What a CPU would compute with at a hundredth of the speed.
TEST_P(Rows, SoftmaxIsZeroBelowTheLeastNormalNumber) {
  for (int64_t n : {3, 16, 40}) {
    Floats x(n), y(n);
    x[1] = -87.3f;
    x[2] = -87.4f;
    SoftmaxArgs args{.x = x.data(), .row_end = 1, .n = n, .y = y.data()};
    table().softmax(args);
    const double sum = static_cast<double>(n - 2);
    ASSERT_NEAR(y[1], std::exp(-87.3) / sum, 1e-5 * std::exp(-87.3));
    ASSERT_EQ(y[2], 0.0f);
  }
}

TEST_P(Rows, SoftmaxOfNothingButMinusInfinityIsNan) {
  for (int64_t n : {1, 16, 40}) {
    Floats x(n, -kInf), y(n);
    SoftmaxArgs args{.x = x.data(), .row_end = 1, .n = n, .y = y.data()};
    table().softmax(args);
    for (int64_t i = 0; i < n; ++i) ASSERT_TRUE(std::isnan(y[i]));
    x[n / 2] = std::numeric_limits<float>::quiet_NaN();
    x[0] = n > 1 ? 1.0f : x[0];
    table().softmax(args);
    for (int64_t i = 0; i < n; ++i) ASSERT_TRUE(std::isnan(y[i]));
  }
}

TEST_P(Rows, Reductions) {
  std::mt19937 rng(5);
  for (int64_t n : kLengths) {
    const int64_t ld = n + 1;
    Floats x(kRows * ld);
    FillNormal(rng, x);
    for (ReduceKind kind : {ReduceKind::kSum, ReduceKind::kMean,
                            ReduceKind::kMax, ReduceKind::kMin}) {
      Floats got(kRows), want(kRows);
      table().reduce(kind, x.data(), kRows, n, ld, got.data());
      ScalarTable().reduce(kind, x.data(), kRows, n, ld, want.data());
      ASSERT_EQ(Difference(got.data(), want.data(), kRows), "") << n;
      for (int64_t row = 0; row < kRows; ++row) {
        const float* v = x.data() + row * ld;
        double sum = 0, size = 0;
        for (int64_t i = 0; i < n; ++i) sum += v[i], size += std::abs(v[i]);
        const double count = static_cast<double>(n);
        const double bound = (TreeUnits(n) + kUnit) * size;
        switch (kind) {
          case ReduceKind::kSum:
            ASSERT_NEAR(got[row], sum, bound);
            break;
          case ReduceKind::kMean:
            ASSERT_NEAR(got[row], sum / count, bound / count);
            break;
          case ReduceKind::kMax:
            ASSERT_EQ(got[row], *std::max_element(v, v + n));
            break;
          case ReduceKind::kMin:
            ASSERT_EQ(got[row], *std::min_element(v, v + n));
            break;
        }
      }
    }
  }
}

TEST_P(Rows, AnExtremeOfNanIsNan) {
  for (int64_t n : {1, 5, 32, 50}) {
    for (int64_t at = 0; at < n; ++at) {
      Floats x(n, 2.0f), y(1);
      x[at] = std::numeric_limits<float>::quiet_NaN();
      for (ReduceKind kind : {ReduceKind::kMax, ReduceKind::kMin}) {
        table().reduce(kind, x.data(), 1, n, n, y.data());
        ASSERT_TRUE(std::isnan(y[0])) << n << " at " << at;
      }
    }
  }
}

TEST_P(Rows, TransposeMovesEveryBit) {
  for (int64_t rows : {1, 2, 3, 4, 5, 8, 16, 23}) {
    for (int64_t columns : {1, 3, 8, 15, 16, 17, 40}) {
      const int64_t ld_x = columns + 2;
      const int64_t ld_y = rows + 1;
      Floats x(rows * ld_x), y(columns * ld_y, -1.0f);
      for (int64_t i = 0; i < x.size(); ++i) {
        // NaNs with different payloads among others.
        const uint32_t bits = 0x7f800001u + static_cast<uint32_t>(i) * 40503u;
        std::memcpy(&x[i], &bits, 4);
      }
      table().transpose(x.data(), rows, columns, ld_x, y.data(), ld_y);
      for (int64_t c = 0; c < columns; ++c) {
        for (int64_t r = 0; r < rows; ++r) {
          ASSERT_EQ(std::memcmp(&y[c * ld_y + r], &x[r * ld_x + c], 4), 0)
              << rows << " x " << columns << " at " << r << ", " << c;
        }
        if (c + 1 < columns) {
          ASSERT_EQ(y[c * ld_y + rows], -1.0f);
        }
      }
    }
  }
}

INSTANTIATE_DENSE_TESTS(Rows);

}  // namespace
}  // namespace millrace::models
