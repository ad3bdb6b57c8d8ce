#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/models/graph/run_op.h"

namespace millrace::models::graph {
namespace {

using ::testing::ElementsAre;
using Ints = std::vector<int64_t>;

TEST(Conv, SlidesAKernelOverPaddingStrideAndDilation) {
  // x = 1 2 3 4 5, kernel 1 10.
  const auto conv = [](Attrs attrs) {
    const auto y = RunOp("Conv",
                         Operands(F({1, 1, 5}, {1, 2, 3, 4, 5}),
                                  F({1, 1, 2}, {1, 10}), F({1}, {100})),
                         std::move(attrs));
    EXPECT_TRUE(y.ok()) << y.status().message();
    return Floats((*y)[0]);
  };
  EXPECT_THAT(conv({}), ElementsAre(121, 132, 143, 154));
  EXPECT_THAT(conv({{"pads", Ints{1, 1}}}),
              ElementsAre(110, 121, 132, 143, 154, 105));
  EXPECT_THAT(conv({{"strides", Ints{3}}}), ElementsAre(121, 154));
  EXPECT_THAT(conv({{"dilations", Ints{3}}}), ElementsAre(141, 152));
  EXPECT_THAT(conv({{"auto_pad", std::string("SAME_LOWER")}}),
              ElementsAre(110, 121, 132, 143, 154));
}

TEST(Conv, GroupsSeeOnlyTheirOwnChannels) {
  const auto y =
      RunOp("Conv",
            Operands(F({1, 2, 1, 2}, {1, 2, 3, 4}), F({2, 1, 1, 1}, {10, 100})),
            {{"group", int64_t{2}}});
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), ElementsAre(10, 20, 300, 400));
}

TEST(Conv, AChannelOfItsOwnMayFeedSeveral) {
  const auto y = RunOp("Conv",
                       Operands(F({1, 2, 1, 3}, {1, 2, 3, 4, 5, 6}),
                                F({4, 1, 1, 2}, {1, 0, 0, 1, 1, 1, 2, 0})),
                       {{"group", int64_t{2}}, {"pads", Ints{0, 1, 0, 0}}});
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]),
              ElementsAre(0, 1, 2, 1, 2, 3, 4, 9, 11, 0, 8, 10));
}

// Against the plain sum, on sizes that leave no tile whole.
TEST(Conv, MatchesTheSimpleSumInThreeDimensions) {
  std::vector<float> x;
  std::vector<float> w;
  for (int i = 0; i < 2 * 3 * 4 * 5 * 6; ++i) x.push_back((i * 7 % 11) - 5);
  for (int i = 0; i < 4 * 3 * 2 * 3 * 2; ++i) w.push_back((i * 5 % 7) - 3);
  const auto y =
      RunOp("Conv", Operands(F({2, 3, 4, 5, 6}, x), F({4, 3, 2, 3, 2}, w)),
            {{"pads", Ints{1, 0, 1, 0, 1, 1}},
             {"strides", Ints{1, 2, 2}},
             {"dilations", Ints{2, 1, 3}}});
  ASSERT_TRUE(y.ok()) << y.status().message();
  const Shape& out = (*y)[0].shape();
  ASSERT_EQ(out, (Shape{2, 4, 3, 2, 3}));
  const float* got = (*y)[0].data<float>();
  for (int n = 0; n < 2; ++n)
    for (int o = 0; o < 4; ++o)
      for (int z = 0; z < 3; ++z)
        for (int r = 0; r < 2; ++r)
          for (int c = 0; c < 3; ++c) {
            float sum = 0;
            for (int i = 0; i < 3 * 2 * 3 * 2; ++i) {
              const int ch = i / 12, a = i / 6 % 2, b = i / 2 % 3, d = i % 2;
              const int iz = z - 1 + a * 2, ir = r * 2 + b;
              const int ic = c * 2 - 1 + d * 3;
              if (iz < 0 || iz >= 4 || ir >= 5 || ic < 0 || ic >= 6) continue;
              sum +=
                  x[((n * 3 + ch) * 4 + iz) * 30 + ir * 6 + ic] * w[o * 36 + i];
            }
            EXPECT_EQ(*got++, sum);
          }
}

TEST(Conv, RefusesWhatDoesNotFit) {
  const auto small =
      RunOp("Conv", Operands(F({1, 1, 2}, {1, 2}), F({1, 1, 3}, {1, 2, 3})));
  EXPECT_EQ(small.status().code(), StatusCode::kInvalidArgument);
  const auto stride =
      RunOp("Conv", Operands(F({1, 1, 2}, {1, 2}), F({1, 1, 1}, {1})),
            {{"strides", Ints{0}}});
  EXPECT_EQ(stride.status().code(), StatusCode::kInvalidArgument);
}

TEST(ConvInteger, PaddingCountsAsTheZeroPoint) {
  const auto y = RunOp("ConvInteger",
                       Operands(U8({1, 1, 2}, {11, 12}), I8({1, 1, 2}, {1, 3}),
                                U8({}, {10}), I8({1}, {1})),
                       {{"pads", Ints{1, 0}}});
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Values<int32_t>((*y)[0]), ElementsAre(2, 4));
}

TEST(ConvTranspose, AddsOverlappingCopiesOfTheKernel) {
  const auto run = [](Attrs attrs) {
    const auto y = RunOp("ConvTranspose",
                         Operands(F({1, 1, 2}, {1, 2}),
                                  F({1, 1, 3}, {1, 10, 100}), F({1}, {0.5f})),
                         std::move(attrs));
    EXPECT_TRUE(y.ok()) << y.status().message();
    return Floats((*y)[0]);
  };
  EXPECT_THAT(run({}), ElementsAre(1.5f, 12.5f, 120.5f, 200.5f));
  EXPECT_THAT(run({{"pads", Ints{1, 1}}}), ElementsAre(12.5f, 120.5f));
  EXPECT_THAT(run({{"strides", Ints{2}}, {"output_padding", Ints{1}}}),
              ElementsAre(1.5f, 10.5f, 102.5f, 20.5f, 200.5f, 0.5f));
}

// total_padding = stride * (in - 1) + output_padding + reach - output_shape is
// 1 here; ONNX gives its larger half to the end with SAME_UPPER alone.
TEST(ConvTranspose, AnAskedSizeDecidesThePadding) {
  const auto run = [](Attrs attrs) {
    attrs.Set("strides", Ints{2});
    attrs.Set("output_shape", Ints{4});
    const auto y = RunOp(
        "ConvTranspose",
        Operands(F({1, 1, 2}, {1, 2}), F({1, 1, 3}, {1, 10, 100})), attrs);
    EXPECT_TRUE(y.ok()) << y.status().message();
    return Floats((*y)[0]);
  };
  EXPECT_THAT(run({}), ElementsAre(10, 102, 20, 200));
  EXPECT_THAT(run({{"auto_pad", "SAME_LOWER"}}), ElementsAre(10, 102, 20, 200));
  EXPECT_THAT(run({{"auto_pad", "SAME_UPPER"}}), ElementsAre(1, 10, 102, 20));
}

TEST(Col2Im, AddsColumnsWhereBlocksOverlap) {
  // Two blocks of two at 0 and 1 of an image of three.
  const auto y = RunOp("Col2Im", Operands(F({1, 2, 2}, {1, 2, 10, 20}),
                                          I64({1}, {3}), I64({1}, {2})));
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), ElementsAre(1, 12, 20));
}

TEST(MaxPool, TellsWhereEachMaximumLies) {
  const auto y = RunOp("MaxPool", Operands(F({1, 2, 3}, {1, 3, 2, 6, 5, NAN})),
                       {{"kernel_shape", Ints{2}}}, 2);
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_EQ((*y)[0].data<float>()[0], 3);
  EXPECT_TRUE(std::isnan((*y)[0].data<float>()[3]));
  EXPECT_THAT(Values<int64_t>((*y)[1]), ElementsAre(1, 1, 3, 5));
}

TEST(AveragePool, DividesByWhatTheWindowHolds) {
  const auto pool = [](Attrs attrs) {
    attrs.Set("kernel_shape", Ints{2});
    attrs.Set("strides", Ints{2});
    attrs.Set("ceil_mode", int64_t{1});
    attrs.Set("pads", Ints{1, 0});
    const auto y = RunOp("AveragePool", Operands(F({1, 1, 4}, {2, 4, 6, 8})),
                         std::move(attrs));
    EXPECT_TRUE(y.ok()) << y.status().message();
    return Floats((*y)[0]);
  };
  // The last window reaches beyond the operand, where nothing counts.
  EXPECT_THAT(pool({}), ElementsAre(2, 5, 8));
  EXPECT_THAT(pool({{"count_include_pad", int64_t{1}}}), ElementsAre(1, 5, 8));
}

TEST(AveragePool, AWindowLargerThanTheOperandCountsWhereSizesAreRoundedUp) {
  Attrs attrs = {{"kernel_shape", Ints{7}}, {"strides", Ints{7}}};
  const auto y = [&] {
    return RunOp("AveragePool", Operands(F({1, 1, 2}, {2, 4})), attrs);
  };
  EXPECT_FALSE(y().ok());
  attrs.Set("ceil_mode", int64_t{1});
  ASSERT_TRUE(y().ok()) << y().status().message();
  EXPECT_THAT(Floats((*y())[0]), ElementsAre(3));
}

TEST(AdaptiveAveragePool, CutsTheAxisAsPyTorchDoes) {
  const auto y =
      RunOp("AdaptiveAveragePool", Operands(F({1, 1, 5}, {1, 2, 3, 4, 5})),
            {{"output_size", Ints{2}}});
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), ElementsAre(2, 4));
}

TEST(GlobalPools, ReduceWholePlanes) {
  const Tensor x = F({1, 2, 1, 2}, {3, -4, 1, 2});
  EXPECT_THAT(Floats((*RunOp("GlobalAveragePool", Operands(x.Copy())))[0]),
              ElementsAre(-0.5f, 1.5f));
  EXPECT_THAT(Floats((*RunOp("GlobalMaxPool", Operands(x.Copy())))[0]),
              ElementsAre(3, 2));
  EXPECT_THAT(Floats((*RunOp("GlobalLpPool", Operands(x.Copy()),
                             {{"p", int64_t{1}}}))[0]),
              ElementsAre(7, 3));
}

}  // namespace
}  // namespace millrace::models::graph
