#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/models/graph/run_op.h"

namespace millrace::models::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

auto Near(std::vector<float> want) {
  return Pointwise(FloatNear(1e-5f), std::move(want));
}
std::string Text(const char* text) { return text; }

std::vector<float> Resize(std::vector<float> x, float scale, Attrs attrs) {
  const auto n = static_cast<int64_t>(x.size());
  const auto y =
      RunOp("Resize",
            Operands(F({1, n}, std::move(x)), std::nullopt, F({2}, {1, scale})),
            std::move(attrs));
  EXPECT_TRUE(y.ok()) << y.status().message();
  return Floats((*y)[0]);
}

TEST(Resize, NearestTakesTheElementBelowTheMiddle) {
  EXPECT_THAT(Resize({1, 2}, 2, {}), ElementsAre(1, 1, 2, 2));
  EXPECT_THAT(Resize({1, 2, 3}, 0.5f, {}), ElementsAre(1));
  EXPECT_THAT(Resize({1, 2, 3, 4}, 0.5f,
                     {{"coordinate_transformation_mode", Text("asymmetric")},
                      {"nearest_mode", Text("floor")}}),
              ElementsAre(1, 3));
}

TEST(Resize, LinearKnowsTheCoordinatesOfEachMode) {
  const auto linear = [](const char* mode) {
    return Resize({0, 4}, 2,
                  {{"mode", Text("linear")},
                   {"coordinate_transformation_mode", Text(mode)}});
  };
  EXPECT_THAT(linear("half_pixel"), Near({0, 1, 3, 4}));
  EXPECT_THAT(linear("asymmetric"), Near({0, 2, 4, 4}));
  EXPECT_THAT(linear("align_corners"), Near({0, 4 / 3.0f, 8 / 3.0f, 4}));
}

TEST(Resize, CubicOfALineIsTheLine) {
  const auto y = Resize({0, 1, 2, 3, 4, 5, 6, 7}, 2, {{"mode", Text("cubic")}});
  EXPECT_NEAR(y[7], 3.25f, 0.1);
  EXPECT_NEAR(y[8], 3.75f, 0.1);
}

TEST(Resize, AntialiasAveragesWhatIsLeftOut) {
  EXPECT_THAT(Resize({0, 8, 0, 8}, 0.5f,
                     {{"mode", Text("linear")}, {"antialias", int64_t{1}}}),
              Near({3, 5}));
}

TEST(Resize, SizesAndTwoAxesOfAStack) {
  const auto y =
      RunOp("Resize",
            Operands(F({2, 1, 1, 2}, {0, 2, 4, 6}), std::nullopt, std::nullopt,
                     I64({4}, {2, 1, 2, 3})),
            {{"mode", Text("linear")},
             {"coordinate_transformation_mode", Text("align_corners")}});
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_EQ((*y)[0].shape(), (Shape{2, 1, 2, 3}));
  EXPECT_THAT(Floats((*y)[0]), Near({0, 1, 2, 0, 1, 2, 4, 5, 6, 4, 5, 6}));
}

TEST(Resize, RefusesBothSizesAndScales) {
  const auto y = RunOp("Resize", Operands(F({1}, {0}), std::nullopt,
                                          F({1}, {1}), I64({1}, {1})));
  EXPECT_EQ(y.status().code(), StatusCode::kInvalidArgument);
}

TEST(Upsample, RepeatsElements) {
  const auto y =
      RunOp("Upsample", Operands(U8({1, 2}, {7, 9}), F({2}, {2, 1.5f})));
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Values<uint8_t>((*y)[0]), ElementsAre(7, 7, 9, 7, 7, 9));
}

TEST(GridSample, ReadsBetweenPixelsAndPadsBeyondThem) {
  // Points at the left pixel, in the middle, half a pixel beyond the right.
  const Tensor grid = F({1, 1, 3, 2}, {-1, 0, 0, 0, 2, 0});
  const auto sample = [&](const char* padding) {
    const auto y =
        RunOp("GridSample", Operands(F({1, 1, 1, 2}, {2, 6}), grid.Copy()),
              {{"align_corners", int64_t{1}}, {"padding_mode", Text(padding)}});
    EXPECT_TRUE(y.ok()) << y.status().message();
    return Floats((*y)[0]);
  };
  EXPECT_THAT(sample("zeros"), Near({2, 4, 3}));
  EXPECT_THAT(sample("border"), Near({2, 4, 6}));
  EXPECT_THAT(sample("reflection"), Near({2, 4, 4}));
}

TEST(GridSample, CoordinatesThatAreNoNumbersAreOutside) {
  const auto y = RunOp("GridSample", Operands(F({1, 1, 1, 1}, {5}),
                                              F({1, 1, 1, 2}, {NAN, 1e30f})));
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), ElementsAre(0));
}

TEST(AffineGrid, MapsTheCornersOfTheImage) {
  const auto y =
      RunOp("AffineGrid",
            Operands(F({1, 2, 3}, {2, 0, 1, 0, 1, 0}), I64({4}, {1, 1, 1, 2})),
            {{"align_corners", int64_t{1}}});
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_EQ((*y)[0].shape(), (Shape{1, 1, 2, 2}));
  EXPECT_THAT(Floats((*y)[0]), Near({-1, 0, 3, 0}));
}

TEST(RoiAlign, AveragesPointsOfEachCell) {
  const auto y = RunOp("RoiAlign",
                       Operands(F({1, 1, 2, 2}, {1, 2, 3, 4}),
                                F({1, 4}, {0, 0, 2, 2}), I64({1}, {0})),
                       {{"output_height", int64_t{1}},
                        {"output_width", int64_t{2}},
                        {"sampling_ratio", int64_t{1}}});
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), Near({2, 3}));
  const auto far = RunOp(
      "RoiAlign",
      Operands(F({1, 1, 1, 1}, {1}), F({1, 4}, {0, 0, 1, 1}), I64({1}, {1})));
  EXPECT_EQ(far.status().code(), StatusCode::kOutOfRange);
}

TEST(RoiAlign, CellsMayHaveChannelsOfTheirOwn) {
  const Attrs attrs = {{"output_width", int64_t{2}},
                       {"sampling_ratio", int64_t{1}},
                       {"own_channels", int64_t{1}}};
  const auto y = RunOp("RoiAlign",
                       Operands(F({1, 2, 1, 2}, {1, 2, 30, 40}),
                                F({1, 4}, {0, 0, 2, 1}), I64({1}, {0})),
                       attrs);
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_EQ((*y)[0].shape(), (Shape{1, 1, 1, 2}));
  EXPECT_THAT(Floats((*y)[0]), Near({1, 40}));
  const auto odd = RunOp(
      "RoiAlign",
      Operands(F({1, 1, 1, 1}, {1}), F({1, 4}, {0, 0, 1, 1}), I64({1}, {0})),
      attrs);
  EXPECT_EQ(odd.status().code(), StatusCode::kInvalidArgument);
}

// A region of 3 x 3 pixels in two columns, which share the one in the middle,
// and one that lies outside.
TEST(MaxRoiPool, TakesTheGreatestPixelOfEachCell) {
  const auto y = RunOp(
      "MaxRoiPool",
      Operands(F({1, 1, 3, 4}, {1, 2, 3, 4, 9, 5, 6, 7, 0, 8, 1, 50}),
               F({2, 5}, {0, 0, 0, 4, 4, 0, 20, 20, 30, 30})),
      {{"pooled_shape", std::vector<int64_t>{1, 2}}, {"spatial_scale", 0.5}});
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), ElementsAre(9, 8, 0, 0));
}

TEST(PsRoiPool, TakesTheMeanOfEachCellsOwnChannel) {
  const auto run = [](float image) {
    return RunOp("PsRoiPool",
                 Operands(F({1, 2, 2, 3}, {1, 3, 5, 0, 0, 0,  //
                                           10, 20, 30, 0, 0, 0}),
                          F({1, 5}, {image, 0, 0, 2, 1})),
                 {{"pooled_shape", std::vector<int64_t>{1, 2}}});
  };
  const auto y = run(0);
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), ElementsAre(1, 20));
  EXPECT_EQ(run(1).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(run(NAN).status().code(), StatusCode::kOutOfRange);
}

TEST(NonMaxSuppression, KeepsTheBestOfBoxesThatOverlap) {
  const auto y =
      RunOp("NonMaxSuppression",
            Operands(F({1, 3, 4}, {0, 0, 1, 1, 0, 0.1f, 1, 1.1f, 0, 5, 1, 6}),
                     F({1, 1, 3}, {0.5f, 0.9f, 0.3f}), I64({1}, {3}),
                     F({}, {0.5f}), F({}, {0.2f})));
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_EQ((*y)[0].shape(), (Shape{2, 3}));
  EXPECT_THAT(Values<int64_t>((*y)[0]), ElementsAre(0, 0, 1, 0, 0, 2));
}

TEST(DeformConv, OffsetsMoveWhatTheKernelReads) {
  const auto y = RunOp(
      "DeformConv", Operands(F({1, 1, 1, 3}, {1, 2, 4}), F({1, 1, 1, 1}, {10}),
                             F({1, 2, 1, 3}, {0, 0, 0, 0.5f, 1, 1}),
                             F({1}, {1}), F({1, 1, 1, 3}, {1, 0.5f, 1})));
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), Near({16, 21, 1}));
}

}  // namespace
}  // namespace millrace::models::graph
