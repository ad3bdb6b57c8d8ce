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
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Within a few roundings of each value.
auto Close(const std::vector<float>& values) {
  return Pointwise(::testing::Truly([](const std::tuple<float, float>& pair) {
                     const auto [got, want] = pair;
                     return std::abs(got - want) <= 4e-7f * std::abs(want);
                   }),
                   values);
}

std::string Other(const std::string& number) {
  return FloatArg("other", number);
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

TEST(AtenNumbers, OfANumberAndNoneTheNumberIsTheExtreme) {
  for (const bool most : {true, false}) {
    Program program({4});
    program.Node("aten.flip.default", {Self(), IntsArg("dims", "[0]")}, "f",
                 {"4"});
    program.Node(most ? "aten.fmax.default" : "aten.fmin.default",
                 {Self(), TensorArg("other", "f")}, "y", {"4"});
    EXPECT_THAT(program.Run("y", {kNan, 1, 2, 5}),
                most ? ElementsAre(5, 2, 2, 5) : ElementsAre(5, 1, 1, 5));
  }
  EXPECT_THAT(One("aten.maximum.default", {Self(), TensorArg("other", "x")},
                  {1}, {kNan}, {1}),
              ElementsAre(IsNan()));
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

TEST(AtenNumbers, LogarithmsOfDeterminantsReachBeyondThem) {
  const std::vector<float> large = {0, 1e30f, 1e30f, 0};
  const auto part = [&](const std::vector<float>& x, size_t place) {
    return OneOf("aten.linalg_slogdet.default", {TensorArg("A", "x")}, {2, 2},
                 x, {7, 7}, place);
  };
  EXPECT_THAT(part(large, 0), ElementsAre(-1));
  EXPECT_THAT(part(large, 1), Close({138.155106f}));
  EXPECT_THAT(part({1, 2, 2, 4}, 0), ElementsAre(0));
  EXPECT_THAT(part({1, 2, 2, 4}, 1), ElementsAre(-kInfinity));
  const auto logdet = [](const std::vector<float>& x) {
    return One("aten.logdet.default", {Self()}, {2, 2}, x, {});
  };
  EXPECT_THAT(logdet(large), ElementsAre(IsNan()));
  EXPECT_THAT(logdet({1e-30f, 0, 0, 1e-30f}), Close({-138.155106f}));
}

// ---- quotients between whole numbers ----
// 0.1f is more than a tenth, so 1 holds it nine times and almost once more.
TEST(AtenNumbers, RemaindersAndTheirQuotientsAreExact) {
  const std::vector<float> x = {1, -1, kInfinity};
  const auto run = [&](const std::string& target,
                       std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {Self(), Other("0.1")});
    return One(target, arguments, {3}, x, {3});
  };
  EXPECT_THAT(run("aten.remainder.Scalar", {}),
              ElementsAre(FloatNear(0.0999999866f, 1e-9f),
                          FloatNear(1.49011612e-8f, 1e-12f), IsNan()));
  for (const auto& y :
       {run("aten.floor_divide.Scalar", {}),
        run("aten.div.Scalar_mode", {Text("rounding_mode", "floor")})}) {
    EXPECT_THAT(y, ElementsAre(9, -10, IsNan()));
  }
  EXPECT_THAT(One("aten.floor_divide.Scalar", {Self(), Other("0.0")}, {2},
                  {1, -1}, {2}),
              ElementsAre(kInfinity, -kInfinity));
}

// ---- sizes of images ----
TEST(AtenNumbers, SizesOfResizedImagesAreCutOffInDoubles) {
  std::vector<float> x;
  for (int i = 0; i < 100; ++i) x.push_back(static_cast<float>(i));
  // 100 times 0.29 is 28.999999999999996, and 29 in FP32.
  const std::vector<float> y =
      One("aten.upsample_nearest1d.vec",
          {TensorArg("input", "x"),
           Arg("scale_factors", R"({"as_floats":[0.29]})")},
          {1, 1, 100}, x, {1, 1, 28});
  ASSERT_EQ(y.size(), 28u);
  EXPECT_EQ(y[1], 3);
  EXPECT_EQ(y[27], 93);
}

TEST(AtenNumbers, CornersOfAResizedImageAreThoseOfItsWholeSize) {
  for (const bool by_scale : {true, false}) {
    const std::string size =
        by_scale ? Arg("scale_factors", R"({"as_floats":[1.5]})")
                 : IntsArg("output_size", "[7]");
    EXPECT_THAT(
        One("aten.upsample_linear1d.vec",
            {TensorArg("input", "x"), size, Truth("align_corners", true)},
            {1, 1, 5}, {0, 3, 6, 9, 12}, {1, 1, 7}),
        Near({0, 2, 4, 6, 8, 10, 12}));
  }
}

// ---- axes that are not named ----
TEST(AtenNumbers, ACrossProductWithoutAnAxisTakesTheFirstOfThree) {
  const auto cross = [](const std::string& target) {
    Program program({3, 3});
    program.Node("aten.flip.default", {Self(), IntsArg("dims", "[0]")}, "f",
                 {"3", "3"});
    program.Node(target, {Self(), TensorArg("other", "f")}, "y", {"3", "3"});
    return program.Run("y", {1, 2, 3, 4, 5, 6, 7, 8, 10});
  };
  EXPECT_THAT(cross("aten.cross.default"),
              ElementsAre(-24, -30, -42, 48, 60, 91, -24, -30, -42));
  // By rows: (1, 2, 3) and (7, 8, 10).
  EXPECT_THAT(cross("aten.linalg_cross.default"),
              ElementsAre(-4, 11, -6, 0, 0, 0, 4, -11, 6));
  Program program({2, 4});
  program.Node("aten.cross.default", {Self(), TensorArg("other", "x")}, "y",
               {"2", "4"});
  program.Output("y");
  EXPECT_THAT(
      std::string(pt2::ImportPt2Bytes(AsBytes(program.Archive()), nullptr, {})
                      .status()
                      .message()),
      HasSubstr("no axis has three elements"));
}

TEST(AtenNumbers, AMatrixOfRightSidesMayBeAVectorForEachMatrix) {
  Program program({2, 2, 2});
  // What the matrices make of a vector of ones.
  program.Node("aten.sum.dim_IntList", {Self(), IntsArg("dim", "[-1]")}, "b",
               {"2", "2"});
  program.Node("aten.linalg_solve.default",
               {TensorArg("A", "x"), TensorArg("B", "b")}, "y", {"2", "2"});
  EXPECT_THAT(program.Run("y", {2, 1, 0, 4, 1, 3, 5, -2}), Near({1, 1, 1, 1}));
}

TEST(AtenNumbers, OneVectorIsARightSideForAllMatrices) {
  Program program({2, 2, 2});
  program.Weight("b", {"2"}, {2, 4}, R"([{"as_int":1}])");
  program.Node("aten.linalg_solve.default",
               {TensorArg("A", "x"), TensorArg("B", "b")}, "y", {"2", "2"});
  EXPECT_THAT(program.Run("y", {2, 0, 0, 4, 1, 0, 0, 2}), Near({1, 1, 2, 2}));
}

TEST(AtenNumbers, ShiftsOfMoreThanTheSizeGoRound) {
  const std::vector<float> x = {1, 2, 3, 4};
  const auto flat = [&](const std::string& shift) {
    return One("aten.roll.default", {Self(), IntsArg("shifts", shift)}, {2, 2},
               x, {2, 2});
  };
  EXPECT_THAT(flat("[6]"), ElementsAre(3, 4, 1, 2));
  EXPECT_THAT(flat("[-5]"), ElementsAre(2, 3, 4, 1));
  EXPECT_THAT(flat("[-8]"), ElementsAre(1, 2, 3, 4));
  for (const bool named : {true, false}) {
    Pt2Program program;
    program.Input("x", {"s0"});
    std::vector<std::string> arguments = {Self(), IntsArg("shifts", "[7]")};
    if (named) arguments.push_back(IntsArg("dims", "[0]"));
    program.Node("aten.roll.default", arguments, "y", {"s0"});
    program.Output("y");
    EXPECT_THAT(FloatsOf(program, {4}, x), ElementsAre(2, 3, 4, 1)) << named;
    EXPECT_THAT(FloatsOf(program, {0}, {}), ElementsAre()) << named;
  }
}

TEST(AtenNumbers, BothPartsOfAComplexNumberAreRolled) {
  Program program({3, 2});
  program.Node("aten.view_as_complex.default", {Self()}, "z", {"3"}, 10);
  program.Node("aten.roll.default", {Self("z"), IntsArg("shifts", "[4]")}, "r",
               {"3"}, 10);
  program.Node("aten.view_as_real.default", {Self("r")}, "y", {"3", "2"});
  EXPECT_THAT(program.Run("y", {1, 2, 3, 4, 5, 6}),
              ElementsAre(5, 6, 1, 2, 3, 4));
}

}  // namespace
}  // namespace millrace::models::graph
