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

// Queries of log 3 against keys 0 and 1 weigh values 1 : 3.
const float kLog3 = std::log(3.0f);
const Attrs kUnscaled = {{"scale", 1.0}};

TEST(Attention, WeighsValuesBySoftmaxOfTheScores) {
  const auto y =
      RunOp("Attention",
            Operands(F({1, 1, 1, 1}, {kLog3}), F({1, 1, 2, 1}, {0, 1}),
                     F({1, 1, 2, 2}, {0, 4, 8, 0})),
            kUnscaled);
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), Near({6, 1}));
}

TEST(Attention, CausalQueriesSeeTheCacheAndWhatCameBefore) {
  Attrs attrs = kUnscaled;
  attrs.Set("is_causal", int64_t{1});
  const auto y =
      RunOp("Attention",
            Operands(F({1, 1, 2, 1}, {0, 0}), F({1, 1, 2, 1}, {0, 0}),
                     F({1, 1, 2, 1}, {3, 7}), std::nullopt,
                     F({1, 1, 1, 1}, {0}), F({1, 1, 1, 1}, {5})),
            attrs, 3);
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), Near({4, 5}));
  EXPECT_THAT(Floats((*y)[2]), ElementsAre(5, 3, 7));
}

TEST(Attention, AQueryThatSeesNothingIsZeroAsInPyTorch) {
  const auto mask = Of<uint8_t>(DType::kBool, {2, 2}, {0, 0, 1, 0});
  const auto y = RunOp(
      "Attention", Operands(F({1, 1, 2, 1}, {1, 1}), F({1, 1, 2, 1}, {1, 1}),
                            F({1, 1, 2, 1}, {3, 7}), mask.Share()));
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), Near({0, 3}));
}

TEST(Attention, HeadsShareKeysInOrderAndPackedRowsAreTheSame) {
  // Four query heads of size 1, two key heads; values tell the key head.
  const auto packed =
      RunOp("Attention",
            Operands(F({1, 1, 4}, {0, 0, 0, 0}), F({1, 1, 2}, {0, 0}),
                     F({1, 1, 2}, {10, 20})),
            {{"q_num_heads", int64_t{4}}, {"kv_num_heads", int64_t{2}}});
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  EXPECT_EQ((*packed)[0].shape(), (Shape{1, 1, 4}));
  EXPECT_THAT(Floats((*packed)[0]), Near({10, 10, 20, 20}));
}

TEST(Attention, AddsTheMaskAfterTheCap) {
  Attrs attrs = kUnscaled;
  attrs.Set("softcap", 1.0);
  attrs.Set("qk_matmul_output_mode", int64_t{2});
  const auto y = RunOp("Attention",
                       Operands(F({1, 1, 1, 1}, {100}), F({1, 1, 1, 1}, {1}),
                                F({1, 1, 1, 1}, {2}), F({1}, {5})),
                       attrs, 4);
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[3]), Near({6}));
}

TEST(Attention, RefusesHeadsThatDoNotFit) {
  const auto y = RunOp(
      "Attention", Operands(F({1, 3, 1, 1}, {1, 1, 1}), F({1, 2, 1, 1}, {1, 1}),
                            F({1, 2, 1, 1}, {1, 1})));
  EXPECT_EQ(y.status().code(), StatusCode::kInvalidArgument);
}

TEST(RotaryEmbedding, TurnsPairsOfEachHead) {
  // A quarter turn: (1, 2) becomes (-2, 1).
  const auto halves =
      RunOp("RotaryEmbedding",
            Operands(F({1, 1, 1, 4}, {1, 3, 2, 4}), F({2, 2}, {9, 9, 0, 1}),
                     F({2, 2}, {9, 9, 1, 0}), I64({1, 1}, {1})));
  ASSERT_TRUE(halves.ok()) << halves.status().message();
  EXPECT_THAT(Floats((*halves)[0]), Near({-2, 3, 1, 4}));
  const auto pairs = RunOp("RotaryEmbedding",
                           Operands(F({1, 1, 4}, {1, 2, 3, 4}),
                                    F({1, 1, 1}, {0}), F({1, 1, 1}, {1})),
                           {{"num_heads", int64_t{1}},
                            {"rotary_embedding_dim", int64_t{2}},
                            {"interleaved", int64_t{1}}});
  ASSERT_TRUE(pairs.ok()) << pairs.status().message();
  EXPECT_THAT(Floats((*pairs)[0]), Near({-2, 1, 3, 4}));
  const auto far =
      RunOp("RotaryEmbedding", Operands(F({1, 1, 1, 2}, {1, 2}), F({1, 1}, {1}),
                                        F({1, 1}, {0}), I64({1, 1}, {1})));
  EXPECT_EQ(far.status().code(), StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace millrace::models::graph
