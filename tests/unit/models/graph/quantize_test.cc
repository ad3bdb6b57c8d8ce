#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/models/graph/run_op.h"

namespace millrace::models::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;

TEST(QuantizeLinear, RoundsTiesToEvenAndSaturates) {
  const auto y = RunOp(
      "QuantizeLinear",
      Operands(F({6}, {1, 3, 5, 1000, -1000, NAN}), F({}, {2}), U8({}, {128})));
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Values<uint8_t>((*y)[0]), ElementsAre(128, 130, 130, 255, 0, 0));
}

TEST(QuantizeLinear, ScalesBelongToAnAxisOrToBlocksOfIt) {
  const Tensor x = F({2, 4}, {2, 4, 6, 8, 2, 4, 6, 8});
  const auto axis = RunOp("QuantizeLinear",
                          Operands(x.Copy(), F({2}, {1, 2}), I8({2}, {0, 1})),
                          {{"axis", int64_t{0}}});
  ASSERT_TRUE(axis.ok()) << axis.status().message();
  EXPECT_THAT(Values<int8_t>((*axis)[0]), ElementsAre(2, 4, 6, 8, 2, 3, 4, 5));
  const auto block = RunOp(
      "QuantizeLinear",
      Operands(x.Copy(), F({2, 2}, {1, 2, 2, 1}), I8({2, 2}, {0, 0, 0, 0})),
      {{"axis", int64_t{1}}, {"block_size", int64_t{2}}});
  ASSERT_TRUE(block.ok()) << block.status().message();
  EXPECT_THAT(Values<int8_t>((*block)[0]), ElementsAre(2, 4, 3, 4, 1, 2, 6, 8));
  const auto wrong =
      RunOp("QuantizeLinear", Operands(x.Copy(), F({3}, {1, 2, 3})));
  EXPECT_EQ(wrong.status().code(), StatusCode::kInvalidArgument);
}

TEST(DequantizeLinear, TakesIntegersBackToFloats) {
  const auto y =
      RunOp("DequantizeLinear",
            Operands(U8({2}, {0, 130}), F({}, {0.5f}), U8({}, {128})));
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), ElementsAre(-64, 1));
}

TEST(DynamicQuantizeLinear, TheRangeHoldsZero) {
  const auto y =
      RunOp("DynamicQuantizeLinear", Operands(F({2}, {51, 102})), {}, 3);
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Values<uint8_t>((*y)[0]), ElementsAre(128, 255));
  EXPECT_THAT(Floats((*y)[1]), ElementsAre(FloatEq(0.4f)));
  EXPECT_THAT(Values<uint8_t>((*y)[2]), ElementsAre(0));
}

TEST(MatMulInteger, ZeroPointsBelongToRowsAndColumns) {
  const auto y =
      RunOp("MatMulInteger",
            Operands(U8({2, 2}, {11, 12, 3, 4}), I8({2, 2}, {1, 2, 3, 4}),
                     U8({2}, {10, 0}), I8({2}, {0, 1})));
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Values<int32_t>((*y)[0]), ElementsAre(7, 7, 15, 15));
}

TEST(QLinearMatMul, RescalesTheIntegerSum) {
  const auto y = RunOp("QLinearMatMul",
                       Operands(U8({1, 2}, {12, 14}), F({}, {0.5f}),
                                U8({}, {10}), U8({2, 1}, {3, 4}), F({}, {2}),
                                U8({}, {0}), F({}, {4}), U8({}, {100})));
  ASSERT_TRUE(y.ok()) << y.status().message();
  // (2 * 3 + 4 * 4) * 0.5 * 2 / 4 = 5.5, to even
  EXPECT_THAT(Values<uint8_t>((*y)[0]), ElementsAre(106));
}

TEST(QLinearConv, EachChannelHasItsScaleAndBias) {
  const auto y =
      RunOp("QLinearConv",
            Operands(U8({1, 1, 2}, {11, 12}), F({}, {1}), U8({}, {10}),
                     I8({2, 1, 1}, {2, 4}), F({2}, {1, 0.5f}), I8({2}, {0, 1}),
                     F({}, {1}), I8({}, {-1}), I32({2}, {5, 1})));
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Values<int8_t>((*y)[0]), ElementsAre(6, 8, 1, 3));
}

}  // namespace
}  // namespace millrace::models::graph
