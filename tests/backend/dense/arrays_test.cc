// Functions of whole arrays: every table against scalar, scalar against C++.
#include <gtest/gtest.h>

#include "tests/backend/dense/dense.h"

namespace millrace::models {
namespace {

constexpr Binary kBinary[] = {Binary::kAdd, Binary::kSub, Binary::kMul,
                              Binary::kDiv, Binary::kMin, Binary::kMax};

float Plain(Binary f, float x, float y) {
  switch (f) {
    case Binary::kAdd:
      return x + y;
    case Binary::kSub:
      return x - y;
    case Binary::kMul:
      return x * y;
    case Binary::kDiv:
      return x / y;
    case Binary::kMin:
      return x < y ? x : y;
    case Binary::kMax:
      break;
  }
  return x > y ? x : y;
}

void Fill(Floats& x, uint32_t seed) {
  std::mt19937 rng(seed);
  FillNormal(rng, x);
}

class DenseArrays : public DenseTest {};

TEST_P(DenseArrays, GiveWhatPlainArithmeticGives) {
  for (const int64_t n : {0, 1, 7, 16, 33, 100}) {
    const auto size = static_cast<size_t>(n) + 1;
    Floats x(size), y(size), got(size), want(size);
    Fill(x, 1);
    Fill(y, 2);
    for (const Binary f : kBinary) {
      for (const auto& [step_x, step_y] : {std::pair{1, 1}, std::pair{0, 1},
                                           std::pair{1, 0}, std::pair{0, 0}}) {
        got[n] = want[n] = 5.0f;
        for (int64_t i = 0; i < n; ++i) {
          want[i] = Plain(f, x[i * step_x], y[i * step_y]);
        }
        table().binary(f, x.data(), step_x, y.data(), step_y, n, got.data());
        // The value behind the end, too.
        EXPECT_EQ(Difference(got.data(), want.data(), n + 1), "");
      }
    }
  }
}

TEST_P(DenseArrays, MixIsAChainOfFmaOverTheRows) {
  for (const int64_t n : {1, 7, 16, 33, 100}) {
    for (const int64_t count : {1, 2, 4, 9}) {
      const auto size = static_cast<size_t>(n) + 1;
      Floats weights(static_cast<size_t>(count)), got(size), want(size);
      Fill(weights, 3);
      Floats rows(static_cast<size_t>(count * n));
      Fill(rows, 4);
      std::vector<const float*> places;
      for (int64_t r = 0; r < count; ++r) {
        places.push_back(rows.data() + r * n);
      }
      got[n] = want[n] = 5.0f;
      for (int64_t i = 0; i < n; ++i) {
        want[i] = 0;
        for (int64_t r = 0; r < count; ++r) {
          want[i] = std::fma(rows[r * n + i], weights[r], want[i]);
        }
      }
      table().mix(places.data(), weights.data(), count, n, got.data());
      EXPECT_EQ(Difference(got.data(), want.data(), n + 1), "");
    }
  }
}

double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

TEST_P(DenseArrays, CellsAreNearDoublePrecisionAndGiveTheBitsOfScalar) {
  for (const int64_t n : {1, 7, 16, 33, 100}) {
    const auto size = static_cast<size_t>(n);
    Floats x(4 * size), r(3 * size), c(size), h(size);
    Fill(x, 1);
    Fill(r, 2);
    Fill(c, 3);
    Fill(h, 4);
    Floats got_c(size), got_h(size), want_c(size), want_h(size);
    std::copy_n(c.data(), n, got_c.data());
    std::copy_n(c.data(), n, want_c.data());
    table().lstm(x.data(), n, got_c.data(), got_h.data());
    ScalarTable().lstm(x.data(), n, want_c.data(), want_h.data());
    EXPECT_EQ(Difference(got_c.data(), want_c.data(), n), "");
    EXPECT_EQ(Difference(got_h.data(), want_h.data(), n), "");
    for (int64_t i = 0; i < n; ++i) {
      const double cell = Logistic(x[2 * n + i]) * c[i] +
                          Logistic(x[i]) * std::tanh(double{x[3 * n + i]});
      EXPECT_NEAR(got_c[i], cell, 2e-6);
      EXPECT_NEAR(got_h[i], Logistic(x[n + i]) * std::tanh(cell), 2e-6);
    }
    std::copy_n(h.data(), n, got_h.data());
    std::copy_n(h.data(), n, want_h.data());
    table().gru(x.data(), r.data(), n, got_h.data());
    ScalarTable().gru(x.data(), r.data(), n, want_h.data());
    EXPECT_EQ(Difference(got_h.data(), want_h.data(), n), "");
    for (int64_t i = 0; i < n; ++i) {
      const double z = Logistic(double{x[i]} + r[i]);
      const double reset = Logistic(double{x[n + i]} + r[n + i]);
      const double v = std::tanh(x[2 * n + i] + reset * r[2 * n + i]);
      EXPECT_NEAR(got_h[i], (1 - z) * v + z * h[i], 2e-6);
    }
  }
}

TEST_P(DenseArrays, FunctionsOfOneValueAreThoseOfTheScalarTableInPlace) {
  for (int f = 0; f <= static_cast<int>(Unary::kCos); ++f) {
    Floats x(101), want(101), got(101);
    Fill(x, 3);
    Fill(got, 3);
    ScalarTable().unary(static_cast<Unary>(f), 0.3f, 0.6f, x.data(), 101,
                        want.data());
    table().unary(static_cast<Unary>(f), 0.3f, 0.6f, got.data(), 101,
                  got.data());
    EXPECT_EQ(Difference(got.data(), want.data(), 101), "") << f;
  }
}

TEST_P(DenseArrays, MayReplaceTheOperandThatIsRepeated) {
  Floats x(40), want(40);
  Fill(x, 4);
  for (int64_t i = 0; i < 40; ++i) want[i] = x[i] - x[0];
  table().binary(Binary::kSub, x.data(), 1, x.data(), 0, 40, x.data());
  EXPECT_EQ(Difference(x.data(), want.data(), 40), "");
}

INSTANTIATE_DENSE_TESTS(DenseArrays);

}  // namespace
}  // namespace millrace::models
