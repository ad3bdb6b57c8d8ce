// The two passes over logits: greatest value, and the sum of exponentials.

#include <cmath>
#include <limits>

#include "tests/backend/kernels/tables.h"

namespace millrace::models {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Sampling : public KernelTest {};

TEST_P(Sampling, MaxFindsTheGreatestWhereverItStands) {
  for (int64_t n : {1, 2, 8, 9, 31, 32, 33, 100}) {
    for (int64_t at = 0; at < n; ++at) {
      Floats x(n, -3.0f);
      x[at] = -2.0f;
      EXPECT_EQ(table().max(x.data(), n), -2.0f) << n << " " << at;
    }
  }
}

TEST_P(Sampling, MaxOfForbiddenLogits) {
  Floats x(11, -kInfinity);
  EXPECT_EQ(table().max(x.data(), 11), -kInfinity);
  x[10] = -1e30f;
  EXPECT_EQ(table().max(x.data(), 11), -1e30f);
}

TEST_P(Sampling, SumExpAgainstDoubleAndScalar) {
  std::mt19937 rng(1);
  for (int64_t n : {1, 7, 8, 9, 40, 1001, 49152}) {
    Floats x(n), got(n), want(n);
    FillNormal(rng, x, 4.0f);
    const float offset = Scalar().max(x.data(), n);
    const float scale = 1.0f / 0.7f;
    const double sum = table().sum_exp(x.data(), n, offset, scale, got.data());
    EXPECT_EQ(sum, Scalar().sum_exp(x.data(), n, offset, scale, want.data()));
    EXPECT_EQ(sum, table().sum_exp(x.data(), n, offset, scale, nullptr));
    EXPECT_EQ(BitDifference(got.data(), want.data(), n), "");
    double expected = 0;
    double tolerance = 0;
    for (int64_t i = 0; i < n; ++i) {
      // exp itself: 4 units. The argument has two roundings, and an absolute
      // error there is a relative one of the result.
      const double argument = (double{x[i]} - offset) * scale;
      const double value = std::exp(argument);
      const double bound = value * (4 + 2 * std::abs(argument)) * kUnit;
      ASSERT_NEAR(got[i], value, bound) << argument;
      expected += value;
      tolerance += bound;
    }
    EXPECT_NEAR(sum, expected, tolerance);
  }
}

TEST_P(Sampling, ExpOfZeroIsOneAndOfForbiddenLogitsNothing) {
  Floats x(12, 5.0f), out(12);
  EXPECT_EQ(table().sum_exp(x.data(), 12, 5.0f, 1.3f, out.data()), 12.0);
  x[3] = -kInfinity;
  x[9] = -200.0f;
  EXPECT_EQ(table().sum_exp(x.data(), 12, 5.0f, 1.0f, out.data()), 10.0);
  EXPECT_EQ(out[3], 0.0f);
  EXPECT_EQ(out[9], 0.0f);
  EXPECT_EQ(out[11], 1.0f);
}

TEST_P(Sampling, ExpIsGoodToFourUnitsOverItsWholeRange) {
  constexpr int64_t kSteps = 20001;
  Floats x(kSteps), got(kSteps), want(kSteps);
  for (int64_t i = 0; i < kSteps; ++i) {
    x[i] = static_cast<float>(-87.3 + 175.6 * static_cast<double>(i) / kSteps);
  }
  table().sum_exp(x.data(), kSteps, 0.0f, 1.0f, got.data());
  Scalar().sum_exp(x.data(), kSteps, 0.0f, 1.0f, want.data());
  EXPECT_EQ(BitDifference(got.data(), want.data(), kSteps), "");
  for (int64_t i = 0; i < kSteps; ++i) {
    const double value = std::exp(double{x[i]});
    ASSERT_NEAR(got[i], value, value * 4 * kUnit) << x[i];
  }
}

INSTANTIATE_KERNEL_TESTS(Sampling);

}  // namespace
}  // namespace millrace::models
