// What happens to single rows: against double precision with derived bounds,
// and bit for bit against scalar, for lengths that leave partial vectors.

#include <cmath>
#include <numbers>

#include "tests/backend/kernels/tables.h"

namespace millrace::models {
namespace {

class Rows : public KernelTest {};

struct Quantized {
  explicit Quantized(int64_t k)
      : q(k), d(k / 32), s(k / 32), sum(k / 32), half(k / 16) {}
  Q8Row row() {
    return {q.data(), d.data(), s.data(), sum.data(), half.data()};
  }
  Buffer<int8_t> q;
  Floats d, s;
  Buffer<int32_t> sum;
  Buffer<int16_t> half;
};

TEST_P(Rows, QuantizedBlocksAreNearestAndCarryTheirSums) {
  std::mt19937 rng(1);
  for (int64_t k : {32, 64, 576, 1536}) {
    Floats x(k);
    FillNormal(rng, x, 3.0f);
    x[5] = 400.0f;
    Quantized got(k), want(k);
    table().quantize_row(x.data(), k, got.row());
    Scalar().quantize_row(x.data(), k, want.row());
    for (int64_t i = 0; i < k; ++i) ASSERT_EQ(got.q[i], want.q[i]) << i;
    EXPECT_EQ(BitDifference(got.d.data(), want.d.data(), k / 32), "");
    EXPECT_EQ(BitDifference(got.s.data(), want.s.data(), k / 32), "");
    for (int64_t b = 0; b < k / 32; ++b) {
      int sum = 0;
      for (int64_t i = b * 32; i < b * 32 + 32; ++i) {
        sum += got.q[i];
        if (i == b * 32 + 15) {
          EXPECT_EQ(got.half[2 * b], sum);
        }
        // Half a step, and the roundings of 1/d and of the product.
        const double bound = 0.5 * got.d[b] + 3 * kUnit * std::abs(x[i]);
        EXPECT_NEAR(double(got.q[i]) * got.d[b], x[i], bound);
      }
      EXPECT_EQ(got.sum[b], sum);
      EXPECT_EQ(got.half[2 * b + 1], sum - got.half[2 * b]);
      EXPECT_EQ(got.s[b], got.d[b] * static_cast<float>(sum));
    }
  }
}

TEST_P(Rows, TheRestIsWhatQuantizingLost) {
  std::mt19937 rng(4);
  for (const int64_t k : {32, 576}) {
    Floats x(k), got(k), want(k);
    FillNormal(rng, x, 3.0f);
    Quantized q(k);
    table().quantize_row(x.data(), k, q.row());
    table().rest_of_row(x.data(), k, q.row(), got.data());
    Scalar().rest_of_row(x.data(), k, q.row(), want.data());
    EXPECT_EQ(BitDifference(got.data(), want.data(), k), "");
    for (int64_t i = 0; i < k; ++i) {
      const double bound = 0.51 * q.d[i / 32] + 3 * kUnit * std::abs(x[i]);
      EXPECT_LE(std::abs(got[i]), bound);
    }
  }
}

TEST_P(Rows, ZeroAndTinyBlocksQuantizeToZero) {
  // Three blocks: zero, tiny, small. Eight at once are another loop.
  for (const int64_t k : {96, 3 * 288}) {
    Floats x(k);
    for (int64_t i = 0; i < k; ++i) {
      const int64_t block = i / 32 % 3;
      if (block == 1) x[i] = 1e-39f;
      if (block == 2) x[i] = i % 2 ? 1e-35f : -1e-35f;
    }
    Quantized got(k);
    table().quantize_row(x.data(), k, got.row());
    for (int64_t i = 0; i < k; ++i) {
      const int small = i % 2 ? 127 : -127;
      EXPECT_EQ(got.q[i], i / 32 % 3 < 2 ? 0 : small) << i;
    }
    for (int64_t b = 0; b < k / 32; ++b) {
      EXPECT_EQ(got.d[b] == 0.0f, b % 3 < 2) << b;
      EXPECT_EQ(got.s[b], 0.0f);
      EXPECT_EQ(got.sum[b], 0);
      EXPECT_EQ(got.half[2 * b], 0);
      EXPECT_EQ(got.half[2 * b + 1], 0);
    }
  }
}

TEST_P(Rows, HalvesRoundToEven) {
  Floats x(32);
  x[0] = 127.0f;  // d is exactly 1
  x[1] = 0.5f;
  x[2] = 1.5f;
  x[3] = -2.5f;
  x[4] = 63.5f;
  Quantized got(32);
  table().quantize_row(x.data(), 32, got.row());
  EXPECT_EQ(got.q[0], 127);
  EXPECT_EQ(got.q[1], 0);
  EXPECT_EQ(got.q[2], 2);
  EXPECT_EQ(got.q[3], -2);
  EXPECT_EQ(got.q[4], 64);
}

TEST_P(Rows, RmsNorm) {
  std::mt19937 rng(2);
  // Many lengths: one unit in the sum is half a unit in its root, which most
  // results round away.
  for (int64_t n = 1; n < 1600; n += n < 70 ? 1 : 61) {
    Floats x(n), weight(n), got(n), want(n);
    FillNormal(rng, x, 2.0f);
    FillNormal(rng, weight);
    table().rms_norm(x.data(), weight.data(), n, 1e-5f, got.data());
    Scalar().rms_norm(x.data(), weight.data(), n, 1e-5f, want.data());
    EXPECT_EQ(BitDifference(got.data(), want.data(), n), "") << n;
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += double{x[i]} * x[i];
    const double r = 1 / std::sqrt(sum / n + double{1e-5f});
    // n / 8 + 3 roundings in the sum count half under the root; then the mean,
    // eps, root, reciprocal and two products.
    const double relative = ((n / 8 + 4) / 2.0 + 6) * kUnit;
    for (int64_t i = 0; i < n; ++i) {
      const double value = x[i] * r * weight[i];
      EXPECT_NEAR(got[i], value, std::abs(value) * relative);
    }
  }
}

TEST_P(Rows, AddAndScale) {
  std::mt19937 rng(3);
  for (int64_t n : {1, 7, 8, 17, 64}) {
    Floats x(n), y(n), sum(n), scaled(n);
    FillNormal(rng, x);
    FillNormal(rng, y);
    for (int64_t i = 0; i < n; ++i) sum[i] = x[i];
    table().add(sum.data(), y.data(), n);
    table().scale(x.data(), 0.125f, n, scaled.data());
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_EQ(sum[i], x[i] + y[i]);
      EXPECT_EQ(scaled[i], x[i] * 0.125f);
    }
  }
}

TEST_P(Rows, SiluMul) {
  std::mt19937 rng(4);
  for (int64_t n : {1, 5, 8, 23, 256}) {
    Floats gate(n), up(n), got(n), want(n);
    FillNormal(rng, gate, 6.0f);
    FillNormal(rng, up);
    table().silu_mul(gate.data(), up.data(), n, got.data());
    Scalar().silu_mul(gate.data(), up.data(), n, want.data());
    EXPECT_EQ(BitDifference(got.data(), want.data(), n), "") << n;
    for (int64_t i = 0; i < n; ++i) {
      const double g = gate[i];
      const double value = g / (1 + std::exp(-g)) * up[i];
      // exp is good to 4 units; the sum, the quotient and two products follow.
      EXPECT_NEAR(got[i], value, std::abs(value) * 8 * kUnit) << g;
    }
  }
}

TEST_P(Rows, SiluOfLargeGatesIsTheGateOrNothing) {
  Floats gate(6), up(6, 1.0f), got(6);
  const float gates[] = {-1e4f, -200.0f, -100.0f, 0.0f, 100.0f, 1e4f};
  for (int i = 0; i < 6; ++i) gate[i] = gates[i];
  table().silu_mul(gate.data(), up.data(), 6, got.data());
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(got[i], 0.0f, 1e-30f) << gates[i];
  EXPECT_EQ(got[4], 100.0f);
  EXPECT_EQ(got[5], 1e4f);
}

TEST_P(Rows, GeluMul) {
  std::mt19937 rng(6);
  for (int64_t n : {1, 5, 8, 23, 256}) {
    Floats gate(n), up(n), got(n), want(n);
    FillNormal(rng, gate, 2.0f);
    FillNormal(rng, up);
    table().gelu_mul(gate.data(), up.data(), n, got.data());
    Scalar().gelu_mul(gate.data(), up.data(), n, want.data());
    EXPECT_EQ(BitDifference(got.data(), want.data(), n), "") << n;
    for (int64_t i = 0; i < n; ++i) {
      const double g = gate[i];
      const double u =
          std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g);
      const double value = 0.5 * g * (1 + std::tanh(u)) * up[i];
      // The argument of exp is off by four roundings of itself, which exp makes
      // relative; then as silu.
      EXPECT_NEAR(got[i], value,
                  std::abs(value) * (8 + 8 * std::abs(u)) * kUnit)
          << g;
    }
  }
}

TEST_P(Rows, SoftCap) {
  std::mt19937 rng(7);
  for (int64_t n : {1, 5, 8, 23, 256}) {
    Floats x(n), got(n), want(n);
    FillNormal(rng, x, 40.0f);
    for (int64_t i = 0; i < n; ++i) got[i] = want[i] = x[i];
    table().soft_cap(got.data(), 30.0f, n);
    Scalar().soft_cap(want.data(), 30.0f, n);
    EXPECT_EQ(BitDifference(got.data(), want.data(), n), "") << n;
    for (int64_t i = 0; i < n; ++i) {
      // Near 0 the difference from 1 keeps the units of 1.
      EXPECT_NEAR(got[i], 30 * std::tanh(x[i] / 30.0), 30 * 8 * kUnit) << x[i];
    }
  }
}

TEST_P(Rows, RopeRotatesPairs) {
  std::mt19937 rng(5);
  for (int64_t head_dim : {2, 6, 16, 48, 64, 80, 128}) {
    for (bool interleaved : {false, true}) {
      const int64_t half = head_dim / 2;
      Floats before(head_dim), cos(half), sin(half), got(head_dim),
          want(head_dim);
      FillNormal(rng, before);
      for (int64_t i = 0; i < half; ++i) {
        const double angle = 0.7 * static_cast<double>(i) + 0.1;
        cos[i] = static_cast<float>(std::cos(angle));
        sin[i] = static_cast<float>(std::sin(angle));
      }
      for (int64_t i = 0; i < head_dim; ++i) got[i] = want[i] = before[i];
      table().rope(got.data(), head_dim, cos.data(), sin.data(), interleaved);
      Scalar().rope(want.data(), head_dim, cos.data(), sin.data(), interleaved);
      EXPECT_EQ(BitDifference(got.data(), want.data(), head_dim), "");
      for (int64_t i = 0; i < half; ++i) {
        const int64_t at_a = interleaved ? 2 * i : i;
        const int64_t at_b = interleaved ? 2 * i + 1 : i + half;
        const double a = before[at_a], b = before[at_b];
        const double bound = 2 * kUnit * (std::abs(a) + std::abs(b));
        EXPECT_NEAR(got[at_a], a * cos[i] - b * sin[i], bound);
        EXPECT_NEAR(got[at_b], a * sin[i] + b * cos[i], bound);
      }
    }
  }
}

INSTANTIATE_KERNEL_TESTS(Rows);

}  // namespace
}  // namespace millrace::models
