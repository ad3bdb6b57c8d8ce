// ATen functions at numbers where a plain formula goes wrong: near 0, far out,
// infinite, not a number, between two whole numbers. The results are PyTorch's
// of the same call (2.15 on a CPU), unless the function itself says them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/models/graph/aten_program.h"

namespace millrace::models::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::IsNan;
using ::testing::Pointwise;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Within a few roundings of each value.
auto Close(const std::vector<float>& values) {
  return Pointwise(::testing::Truly([](const std::tuple<float, float>& pair) {
                     const auto [got, want] = pair;
                     return std::abs(got - want) <= 4e-7f * std::abs(want);
                   }),
                   values);
}

// ---- evenly spaced numbers ----
TEST(AtenNumbers, ARangeIsCountedInDoubles) {
  const std::vector<float> y =
      One("aten.arange.start_step",
          {IntArg("start", "0"), IntArg("end", "1"), FloatArg("step", "0.01")},
          {1}, {0}, {100});
  ASSERT_EQ(y.size(), 100u);
  EXPECT_EQ(y[99], 0.99f);
}

TEST(AtenNumbers, TheEndOfARangeIsNotRoundedToItsType) {
  Program program({1});
  // BF16 has no 1001: 1000 is next to it.
  program.Node("aten.arange.default", {FloatArg("end", "1001.0")}, "b",
               {"1001"}, 13);
  program.Node("aten.to.dtype", {Self("b"), IntArg("dtype", "7")}, "y",
               {"1001"});
  const std::vector<float> y = program.Run("y", {0});
  ASSERT_EQ(y.size(), 1001u);
  EXPECT_EQ(y[255], 255);
}

// ---- extremes ----
TEST(AtenNumbers, TheSumOfTwoInfinitePowersIsOne) {
  EXPECT_THAT(
      One("aten.logaddexp.default", {Self(), TensorArg("other", "x")}, {3},
          {-kInfinity, kInfinity, 1}, {3}),
      ElementsAre(-kInfinity, kInfinity, FloatNear(1 + std::log(2.0f), 1e-6f)));
}

// ---- digits that differences lose ----
TEST(AtenNumbers, SmallArgumentsKeepTheirDigits) {
  const std::vector<float> x = {1e-8f, -3e-5f, 0.5f};
  EXPECT_THAT(One("aten.log1p.default", {Self()}, {3}, x, {3}),
              Close({1e-8f, -3.00004500e-5f, 0.405465108f}));
  EXPECT_THAT(One("aten.expm1.default", {Self()}, {3}, x, {3}),
              Close({1e-8f, -2.99995500e-5f, 0.648721271f}));
}

TEST(AtenNumbers, WhatErfLeavesOfOneKeepsItsDigits) {
  EXPECT_THAT(One("aten.erfc.default", {Self()}, {3}, {5, 0, -5}, {3}),
              Close({1.53745979e-12f, 1, 2}));
}

}  // namespace
}  // namespace millrace::models::graph
