// Functions that ONNX has not, at their known values and at their poles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/models/graph/run_op.h"

namespace millrace::models::graph {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsNan;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kEuler = 0.5772156649015329;

std::vector<double> At(const char* op, const std::vector<double>& x) {
  const auto y = RunOp(op, Operands(D({static_cast<int64_t>(x.size())}, x)));
  EXPECT_TRUE(y.ok()) << y.status().ToString();
  return y.ok() ? Values<double>((*y)[0]) : std::vector<double>();
}

TEST(Special, LogOfTheGammaFunctionIsThatOfFactorials) {
  EXPECT_THAT(
      At("Lgamma", {1, 5, 0.5, -0.5, -2}),
      ElementsAre(0, DoubleNear(std::log(24), 1e-14),
                  DoubleNear(std::log(M_PI) / 2, 1e-14),
                  DoubleNear(std::log(2 * std::sqrt(M_PI)), 1e-14), kInfinity));
}

TEST(Special, DigammaHasPolesAtZeroAndNegativeIntegers) {
  EXPECT_THAT(
      At("Digamma", {1, 2, 0.5, -0.5, 1e6}),
      ElementsAre(DoubleNear(-kEuler, 1e-12), DoubleNear(1 - kEuler, 1e-12),
                  DoubleNear(-kEuler - 2 * std::log(2), 1e-12),
                  DoubleNear(2 - kEuler - 2 * std::log(2), 1e-12),
                  DoubleNear(std::log(1e6) - 0.5e-6, 1e-12)));
  EXPECT_THAT(At("Digamma", {0, -0.0, -3}),
              ElementsAre(-kInfinity, kInfinity, IsNan()));
}

TEST(Special, TheInverseOfErfGivesBackWhatErfWasGiven) {
  std::vector<double> x = {-2.5, -1, -1e-8, 0, 0.3, 0.7, 2, 3.5};
  std::vector<double> erfs;
  for (const double value : x) erfs.push_back(std::erf(value));
  const std::vector<double> y = At("ErfInv", erfs);
  ASSERT_EQ(y.size(), x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    // Near 1 a step of the operand is many steps of the result.
    const double slope = std::sqrt(M_PI) / 2 * std::exp(x[i] * x[i]);
    EXPECT_NEAR(y[i], x[i], 1e-15 + 4e-16 * slope) << x[i];
  }
  EXPECT_THAT(At("ErfInv", {1, -1, 1.5}),
              ElementsAre(kInfinity, -kInfinity, IsNan()));
}

TEST(Special, FunctionsKeepTheDigitsThatTheirFormulasLose) {
  EXPECT_THAT(At("Log1p", {1e-20, -1}), ElementsAre(1e-20, -kInfinity));
  EXPECT_THAT(At("Expm1", {1e-20, -kInfinity}), ElementsAre(1e-20, -1));
  EXPECT_THAT(At("Erfc", {0, 10, -10}),
              ElementsAre(1, DoubleNear(2.0884875837625446e-45, 1e-59), 2));
  // Floats stay floats: 1 + 2^-30 is 1 in FP32.
  const auto y = RunOp("Log1p", Operands(F({1}, {0x1p-30f})));
  ASSERT_TRUE(y.ok()) << y.status().ToString();
  EXPECT_EQ(Floats((*y)[0]), std::vector<float>{0x1p-30f});
}

TEST(Special, IntegersAreRefused) {
  EXPECT_FALSE(RunOp("Lgamma", Operands(I64({1}, {3}))).ok());
}

}  // namespace
}  // namespace millrace::models::graph
