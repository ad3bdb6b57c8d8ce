#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/models/graph/run_op.h"

namespace millrace::models::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

auto Near(std::vector<float> want) {
  return Pointwise(FloatNear(1e-5f), std::move(want));
}
const Attrs kNoEpsilon = {{"epsilon", 0.0}};

TEST(LayerNormalization, ScalesRowsToUnitVarianceAndTellsTheStatistics) {
  // Rows (1, 3) and (0, 4): means 2 and 2, deviations 1 and 2.
  const auto y = RunOp(
      "LayerNormalization",
      Operands(F({2, 2}, {1, 3, 0, 4}), F({2}, {1, 10}), F({2}, {0, 0.5f})),
      kNoEpsilon, 3);
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), Near({-1, 10.5f, -1, 10.5f}));
  EXPECT_EQ((*y)[1].shape(), (Shape{2, 1}));
  EXPECT_THAT(Floats((*y)[1]), Near({2, 2}));
  EXPECT_THAT(Floats((*y)[2]), Near({1, 0.5f}));
}

TEST(LayerNormalization, AScaleMayDifferFromRowToRow) {
  const auto y =
      RunOp("LayerNormalization",
            Operands(F({2, 2}, {1, 3, 0, 4}), F({2, 1}, {1, 2})), kNoEpsilon);
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), Near({-1, 1, -2, 2}));
}

TEST(RmsNormalization, DividesByTheRootOfTheMeanSquare) {
  const auto y = RunOp("RMSNormalization",
                       Operands(F({1, 2}, {1, 7}), F({2}, {5, 5})), kNoEpsilon);
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), Near({1, 7}));
}

TEST(LpNormalization, AnAxisOfZerosStaysZero) {
  const auto y = RunOp("LpNormalization", Operands(F({2, 2}, {3, 0, 4, 0})),
                       {{"axis", int64_t{0}}});
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), Near({0.6f, 0, 0.8f, 0}));
}

TEST(BatchNormalization, UsesTheGivenStatisticsOfEachChannel) {
  const auto y = RunOp("BatchNormalization",
                       Operands(F({1, 2, 1}, {5, 5}), F({2}, {2, 3}),
                                F({2}, {0, 1}), F({2}, {1, 2}), F({2}, {4, 9})),
                       kNoEpsilon);
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), Near({4, 4}));
}

TEST(BatchNormalization, TrainsOnTheBatchAndMixesTheStatistics) {
  Attrs attrs = kNoEpsilon;
  attrs.Set("training_mode", int64_t{1});
  attrs.Set("momentum", 0.75);
  const auto y = RunOp("BatchNormalization",
                       Operands(F({2, 1, 1}, {1, 5}), F({1}, {1}), F({1}, {0}),
                                F({1}, {7}), F({1}, {8})),
                       attrs, 3);
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), Near({-1, 1}));
  EXPECT_THAT(Floats((*y)[1]), Near({6}));
  EXPECT_THAT(Floats((*y)[2]), Near({7}));
}

TEST(GroupNormalization, NormalisesEachGroupOfChannels) {
  const Attrs attrs = {{"epsilon", 0.0}, {"num_groups", int64_t{1}}};
  const auto y = RunOp(
      "GroupNormalization",
      Operands(F({1, 2, 1}, {1, 3}), F({2}, {1, 2}), F({2}, {0, 1})), attrs);
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), Near({-1, 3}));
  const auto odd = RunOp("GroupNormalization", Operands(F({1, 3}, {1, 2, 3})),
                         {{"num_groups", int64_t{2}}});
  EXPECT_EQ(odd.status().code(), StatusCode::kInvalidArgument);
}

TEST(InstanceNormalization, NormalisesEachChannelAlone) {
  const auto y = RunOp("InstanceNormalization",
                       Operands(F({1, 2, 2}, {1, 3, 0, 4})), kNoEpsilon);
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), Near({-1, 1, -1, 1}));
}

TEST(MeanVarianceNormalization, ReducesTheAxesThatAreAskedFor) {
  const auto y =
      RunOp("MeanVarianceNormalization", Operands(F({2, 2}, {1, 0, 3, 4})),
            {{"axes", std::vector<int64_t>{0}}});
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), Near({-1, -1, 1, 1}));
}

TEST(Lrn, SumsSquaresOfNeighbouringChannels) {
  const auto y = RunOp(
      "LRN", Operands(F({1, 3, 1}, {1, 2, 3})),
      {{"size", int64_t{3}}, {"alpha", 3.0}, {"beta", 1.0}, {"bias", 0.0}});
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), Near({1 / 5.0f, 2 / 14.0f, 3 / 13.0f}));
}

}  // namespace
}  // namespace millrace::models::graph
