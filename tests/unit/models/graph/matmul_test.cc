#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "models/tensor/float16.h"
#include "tests/unit/models/graph/run_op.h"

namespace millrace::models::graph {
namespace {

using ::testing::ElementsAre;

// i * 7 mod 5 - 2 and the like: small integers, so that float sums are exact.
std::vector<float> Small(int64_t count, int64_t step) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(i * step % 5 - 2));
  }
  return values;
}

TEST(MatMul, EveryTileAndEdgeMatchesTheSimpleSum) {
  // Around the tile's rows (12) and columns (32), the block of columns (256)
  // and the block of the inner size (512).
  for (const int64_t m : {1, 5, 12, 13}) {
    for (const int64_t n : {1, 31, 33, 260}) {
      for (const int64_t k : {0, 1, 17, 513}) {
        const std::vector<float> a = Small(m * k, 7);
        const std::vector<float> b = Small(k * n, 3);
        std::vector<float> want(static_cast<size_t>(m * n));
        std::vector<float> turned(b.size());
        for (int64_t p = 0; p < k; ++p) {
          for (int64_t j = 0; j < n; ++j) {
            const float v = b[static_cast<size_t>(p * n + j)];
            turned[static_cast<size_t>(j * k + p)] = v;
            for (int64_t i = 0; i < m; ++i) {
              want[static_cast<size_t>(i * n + j)] +=
                  a[static_cast<size_t>(i * k + p)] * v;
            }
          }
        }
        const auto y = RunOp("MatMul", Operands(F({m, k}, a), F({k, n}, b)));
        ASSERT_TRUE(y.ok()) << y.status().message();
        EXPECT_EQ(Floats((*y)[0]), want) << m << " " << n << " " << k;
        const auto z =
            RunOp("Linear", Operands(F({m, k}, a), F({n, k}, turned)));
        ASSERT_TRUE(z.ok()) << z.status().message();
        EXPECT_EQ(Floats((*z)[0]), want) << m << " " << n << " " << k;
      }
    }
  }
}

TEST(MatMul, BroadcastsStacksOfMatrices) {
  const auto y = RunOp("MatMul", Operands(F({2, 1, 1, 2}, {1, 2, 3, 4}),
                                          F({3, 2, 1}, {1, 0, 0, 1, 1, 1})));
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_EQ((*y)[0].shape(), (Shape{2, 3, 1, 1}));
  EXPECT_THAT(Floats((*y)[0]), ElementsAre(1, 2, 3, 3, 4, 7));
}

TEST(MatMul, VectorsLoseTheirDimension) {
  const auto y = RunOp("MatMul", Operands(F({2}, {1, 2}), F({2}, {3, 4})));
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_EQ((*y)[0].shape(), Shape{});
  EXPECT_THAT(Floats((*y)[0]), ElementsAre(11));
}

TEST(GroupedMatMul, MultipliesEachRowByTheMatrixOfItsGroup) {
  const auto y = [](std::vector<int32_t> ends) {
    return RunOp("GroupedMatMul",
                 Operands(F({4, 1}, {1, 2, 3, 4}), F({2, 1, 2}, {1, 10, 5, 50}),
                          I32({2}, std::move(ends))));
  };
  const auto got = y({1, 3});
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_THAT(Floats((*got)[0]), ElementsAre(1, 10, 10, 100, 15, 150, 0, 0));
  EXPECT_FALSE(y({3, 1}).ok());
  EXPECT_FALSE(y({1, 5}).ok());
}

TEST(MatMul, IntegersWrap) {
  const int32_t big = std::numeric_limits<int32_t>::max();
  const auto y =
      RunOp("MatMul", Operands(I32({1, 2}, {big, 1}), I32({2, 1}, {1, 1})));
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Values<int32_t>((*y)[0]),
              ElementsAre(std::numeric_limits<int32_t>::min()));
  const auto z =
      RunOp("MatMul", Operands(I8({1, 2}, {-3, 4}), I8({2, 1}, {5, 6})));
  EXPECT_THAT(Values<int8_t>((*z)[0]), ElementsAre(9));
}

TEST(MatMul, HalvesAreSummedInFloat) {
  // 2048 + 1 + 1 is 2048 when each step is rounded to a half.
  const std::vector<Half> a = {Half(2048), Half(1), Half(1)};
  const std::vector<Half> b = {Half(1), Half(1), Half(1)};
  const auto y = RunOp("MatMul", Operands(Of<Half>(DType::kF16, {1, 3}, a),
                                          Of<Half>(DType::kF16, {3, 1}, b)));
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_EQ(static_cast<float>((*y)[0].data<Half>()[0]), 2050);
}

TEST(MatMul, RefusesInnerSizesThatDiffer) {
  const auto y = RunOp("MatMul", Operands(F({1, 2}, {1, 2}), F({1, 1}, {1})));
  EXPECT_EQ(y.status().code(), StatusCode::kInvalidArgument);
}

TEST(Linear, AddsABiasToEachRow) {
  const auto y = RunOp("Linear", Operands(F({2, 2}, {1, 2, 3, 4}),
                                          F({1, 2}, {1, -1}), F({1}, {10})));
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), ElementsAre(9, 9));
}

TEST(Gemm, ScalesTransposesAndAddsAColumn) {
  const auto y = RunOp(
      "Gemm", Operands(F({1, 2}, {1, 2}), F({1, 1}, {3}), F({2, 1}, {10, 20})),
      {{"transA", int64_t{1}}, {"alpha", 2.0}, {"beta", 0.5}});
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_EQ((*y)[0].shape(), (Shape{2, 1}));
  EXPECT_THAT(Floats((*y)[0]), ElementsAre(11, 22));
}

}  // namespace
}  // namespace millrace::models::graph
