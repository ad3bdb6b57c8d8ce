// Functions of one value: errors over millions of floats in units in the last
// place, special values, and the bits of scalar.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "tests/backend/dense/dense.h"

namespace millrace::models {
namespace {

class Functions : public DenseTest {};

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Function {
  const char* name;
  Unary f;
  float a, b;
  double low, high;  // arguments
  // Error allowed: units of the last place of the result, and absolutely, where
  // a result is a difference.
  double units, absolute;
  std::function<double(double)> exact;
};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double Softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}
double HardSigmoid(double x, double a, double b) {
  return std::clamp(a * x + b, 0.0, 1.0);
}

const Function kFunctions[] = {
    {"relu", Unary::kRelu, 0, 0, -9, 9, 0, 0,
     [](double x) { return std::max(x, 0.0); }},
    {"clip", Unary::kClip, -1, 6, -9, 9, 0, 0,
     [](double x) { return std::clamp(x, -1.0, 6.0); }},
    {"leaky relu", Unary::kLeakyRelu, 0.25f, 0, -9, 9, 0.5, 0,
     [](double x) { return x < 0 ? x / 4 : x; }},
    {"sigmoid", Unary::kSigmoid, 0, 0, -80, 80, 4, 0, Sigmoid},
    {"hard sigmoid", Unary::kHardSigmoid, 0.25f, 0.5f, -9, 9, 0.5, 0,
     [](double x) { return HardSigmoid(x, 0.25, 0.5); }},
    // 1 / 6 is rounded, which shows where its product meets 0.5.
    {"hard swish", Unary::kHardSwish, 0, 0, -9, 9, 2, 3e-7,
     [](double x) { return x * HardSigmoid(x, 1.0 / 6, 0.5); }},
    {"silu", Unary::kSilu, 0, 0, -80, 80, 5, 0,
     [](double x) { return x * Sigmoid(x); }},
    // 1 + erf loses digits below 0; the loss is half of x times units of 1.
    {"gelu", Unary::kGeluErf, 0, 0, -9, 9, 5, 1.1e-6,
     [](double x) { return x / 2 * (1 + std::erf(x * std::sqrt(0.5))); }},
    // The exponent is rounded, so its size is lost in the power.
    {"gelu tanh", Unary::kGeluTanh, 0, 0, -9, 9, 5, 3e-7,
     [](double x) {
       const double u = 0.7978845608028654 * (x + 0.044715 * x * x * x);
       return x / (1 + std::exp(-2 * u));
     }},
    {"tanh", Unary::kTanh, 0, 0, -12, 12, 5, 0,
     [](double x) { return std::tanh(x); }},
    {"elu", Unary::kElu, 1, 0, -30, 9, 3, 0,
     [](double x) { return x > 0 ? x : std::expm1(x); }},
    {"softplus", Unary::kSoftplus, 1, 0, -80, 40, 5, 0, Softplus},
    {"mish", Unary::kMish, 0, 0, -80, 40, 8, 0,
     [](double x) { return x * std::tanh(Softplus(x)); }},
    {"exp", Unary::kExp, 0, 0, -87, 88.7, 2, 0,
     [](double x) { return std::exp(x); }},
    {"log", Unary::kLog, 0, 0, 1e-6, 100, 2, 0,
     [](double x) { return std::log(x); }},
    {"sqrt", Unary::kSqrt, 0, 0, 0, 100, 0.5, 0,
     [](double x) { return std::sqrt(x); }},
    {"rsqrt", Unary::kRsqrt, 0, 0, 1e-3, 100, 1.5, 0,
     [](double x) { return 1 / std::sqrt(x); }},
    {"reciprocal", Unary::kReciprocal, 0, 0, -9, 9, 0.5, 0,
     [](double x) { return 1 / x; }},
    {"neg", Unary::kNeg, 0, 0, -9, 9, 0, 0, [](double x) { return -x; }},
    {"abs", Unary::kAbs, 0, 0, -9, 9, 0, 0,
     [](double x) { return std::abs(x); }},
    {"erf", Unary::kErf, 0, 0, -5, 5, 6, 0,
     [](double x) { return std::erf(x); }},
    {"floor", Unary::kFloor, 0, 0, -9, 9, 0, 0,
     [](double x) { return std::floor(x); }},
    {"ceil", Unary::kCeil, 0, 0, -9, 9, 0, 0,
     [](double x) { return std::ceil(x); }},
    {"round", Unary::kRound, 0, 0, -9, 9, 0, 0,
     [](double x) { return std::nearbyint(x); }},
    {"sin", Unary::kSin, 0, 0, -30000, 30000, 1, 2e-7,
     [](double x) { return std::sin(x); }},
    {"cos", Unary::kCos, 0, 0, -30000, 30000, 1, 2e-7,
     [](double x) { return std::cos(x); }},
};

double UnitOf(double x) {
  const float size = std::max(static_cast<float>(std::abs(x)), 0x1p-126f);
  return std::ldexp(1.0, std::ilogb(size) - 23);
}

TEST_P(Functions, AreWithinTheirUnits) {
  constexpr int64_t kCount = 200001;
  Floats x(kCount), y(kCount);
  for (const Function& f : kFunctions) {
    for (int64_t i = 0; i < kCount; ++i) {
      const double t = static_cast<double>(i) / (kCount - 1);
      x[i] = static_cast<float>(f.low + (f.high - f.low) * t);
      // A third of them small, where results are proportional or steep.
      if (i % 3 == 0 && f.low < 0)
        x[i] *= std::exp2(-static_cast<float>(i % 31));
    }
    table().unary(f.f, f.a, f.b, x.data(), kCount, y.data());
    double worst = 0;
    float at = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      const double want = f.exact(x[i]);
      if (double{y[i]} == want) continue;
      const double off = std::abs(y[i] - want) - f.absolute;
      const double units = off / UnitOf(want);
      if (!(units <= worst)) worst = units, at = x[i];
    }
    EXPECT_LE(worst, f.units) << f.name << " of " << at;
  }
}

TEST_P(Functions, KeepTheBitsOfScalarForAllKindsOfFloats) {
  std::vector<float> values = {0.0f,   -0.0f,   kInf,    -kInf,    kNan,
                               1e-45f, -1e-40f, 3.4e38f, -3.4e38f, 88.72f,
                               88.73f, -87.4f,  -103.9f, -104.1f,  0.5f,
                               1.5f,   2.5f,    -0.5f};
  std::mt19937 rng(1);
  while (values.size() < 20003) {
    const float v = __builtin_bit_cast(float, static_cast<uint32_t>(rng()));
    values.push_back(v);
  }
  const int64_t n = static_cast<int64_t>(values.size());
  Floats got(n), want(n);
  for (const Function& f : kFunctions) {
    table().unary(f.f, f.a, f.b, values.data(), n, got.data());
    ScalarTable().unary(f.f, f.a, f.b, values.data(), n, want.data());
    ASSERT_EQ(Difference(got.data(), want.data(), n), "") << f.name;
  }
}

TEST_P(Functions, SpecialValues) {
  const auto of = [&](Unary f, float x) {
    Floats v(1, x);
    table().unary(f, 1.0f, 2.0f, v.data(), 1, v.data());
    return v[0];
  };
  EXPECT_EQ(of(Unary::kExp, kInf), kInf);
  EXPECT_EQ(of(Unary::kExp, 89.0f), kInf);
  EXPECT_EQ(of(Unary::kExp, -kInf), 0.0f);
  EXPECT_EQ(of(Unary::kExp, 0.0f), 1.0f);
  EXPECT_NEAR(of(Unary::kExp, -100.0f), std::exp(-100.0), 1.5e-45);
  EXPECT_EQ(of(Unary::kLog, 0.0f), -kInf);
  EXPECT_EQ(of(Unary::kLog, 1.0f), 0.0f);
  EXPECT_EQ(of(Unary::kLog, kInf), kInf);
  EXPECT_NEAR(of(Unary::kLog, 1e-45f), std::log(1e-45f), 1e-5);
  EXPECT_TRUE(std::isnan(of(Unary::kLog, -1.0f)));
  EXPECT_EQ(of(Unary::kTanh, kInf), 1.0f);
  EXPECT_EQ(of(Unary::kTanh, -kInf), -1.0f);
  EXPECT_EQ(of(Unary::kErf, -kInf), -1.0f);
  EXPECT_EQ(of(Unary::kErf, 4.0f), 1.0f);
  EXPECT_EQ(of(Unary::kSigmoid, -kInf), 0.0f);
  EXPECT_EQ(of(Unary::kSoftplus, kInf), kInf);
  EXPECT_EQ(of(Unary::kElu, -kInf), -1.0f);
  for (const Function& f : kFunctions) {
    EXPECT_TRUE(std::isnan(of(f.f, kNan))) << f.name;
  }
}

TEST_P(Functions, WhereChoosesByBytes) {
  for (int64_t n : {1, 15, 16, 40}) {
    Buffer<uint8_t> mask(n);
    Floats x(n, 3.0f), y(n), got(n);
    for (int64_t i = 0; i < n; ++i) {
      mask[i] = static_cast<uint8_t>(i % 3);
      y[i] = static_cast<float>(i);
    }
    for (int64_t step : {0, 1}) {
      table().where(mask.data(), x.data(), step, y.data(), 1, n, got.data());
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(got[i], i % 3 != 0 ? 3.0f : static_cast<float>(i));
      }
      table().where(mask.data(), y.data(), 1, x.data(), step, n, got.data());
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(got[i], i % 3 == 0 ? 3.0f : static_cast<float>(i));
      }
    }
  }
}

INSTANTIATE_DENSE_TESTS(Functions);

}  // namespace
}  // namespace millrace::models
