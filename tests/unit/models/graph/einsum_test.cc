#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/models/graph/run_op.h"

namespace millrace::models::graph {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

auto Near(std::vector<float> want) {
  return Pointwise(FloatNear(1e-5f), std::move(want));
}

TEST(Einsum, TransposesReducesAndReadsDiagonals) {
  const Tensor x = F({2, 2}, {1, 2, 3, 4});
  const auto one = [&](const char* equation) {
    const auto y = RunOp("Einsum", Operands(x.Copy()),
                         {{"equation", std::string(equation)}});
    EXPECT_TRUE(y.ok()) << y.status().message();
    return Floats((*y)[0]);
  };
  EXPECT_THAT(one("ij->ji"), ElementsAre(1, 3, 2, 4));
  EXPECT_THAT(one("ba"), ElementsAre(1, 3, 2, 4));
  EXPECT_THAT(one("ij -> i"), ElementsAre(3, 7));
  EXPECT_THAT(one("ii->i"), ElementsAre(1, 4));
  EXPECT_THAT(one("ii"), ElementsAre(5));
  EXPECT_THAT(one("...->..."), ElementsAre(1, 2, 3, 4));
}

TEST(Einsum, ContractsStacksAndRepeatsSizesOfOne) {
  const auto y = RunOp("Einsum",
                       Operands(F({2, 1, 2}, {1, 2, 3, 4}),
                                F({1, 2, 1}, {1, 10}), F({2}, {1, 100})),
                       {{"equation", std::string("...ij,...jk,l->...lik")}});
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_EQ((*y)[0].shape(), (Shape{2, 2, 1, 1}));
  EXPECT_THAT(Floats((*y)[0]), ElementsAre(21, 2100, 43, 4300));
}

TEST(Einsum, RefusesEquationsThatDoNotFit) {
  for (const char* equation : {"ij,jk->ik", "i->i", "ij->k", "i.j->i", "i1"}) {
    const auto y = RunOp("Einsum", Operands(F({1, 2}, {1, 2})),
                         {{"equation", std::string(equation)}});
    EXPECT_EQ(y.status().code(), StatusCode::kInvalidArgument) << equation;
  }
}

TEST(EmbeddingBag, ReducesRowsByBag) {
  const auto bag = [](const char* mode) {
    const auto y =
        RunOp("EmbeddingBag",
              Operands(F({3, 2}, {1, 2, 3, 5, 100, 100}),
                       I64({4}, {0, 1, 2, 1}), I64({3}, {0, 3, 3})),
              {{"mode", std::string(mode)}, {"padding_idx", int64_t{2}}});
    EXPECT_TRUE(y.ok()) << y.status().message();
    return Floats((*y)[0]);
  };
  EXPECT_THAT(bag("sum"), ElementsAre(4, 7, 0, 0, 3, 5));
  EXPECT_THAT(bag("mean"), ElementsAre(2, 3.5f, 0, 0, 3, 5));
  EXPECT_THAT(bag("max"), ElementsAre(3, 5, 0, 0, 3, 5));
}

TEST(EmbeddingBag, WeighsSamplesAndRefusesForeignRows) {
  const auto y =
      RunOp("EmbeddingBag", Operands(F({2, 1}, {1, 10}), I32({1, 2}, {0, 1}),
                                     std::nullopt, F({1, 2}, {0.5f, 2})));
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), ElementsAre(20.5f));
  const auto far =
      RunOp("EmbeddingBag", Operands(F({2, 1}, {1, 10}), I32({1, 1}, {2})));
  EXPECT_EQ(far.status().code(), StatusCode::kOutOfRange);
  const auto falling = RunOp(
      "EmbeddingBag",
      Operands(F({2, 1}, {1, 10}), I32({2}, {0, 1}), I32({3}, {0, 2, 1})));
  EXPECT_EQ(falling.status().code(), StatusCode::kOutOfRange);
}

TEST(Dft, TransformsAnyLengthAndBack) {
  for (const int64_t n : {1, 2, 5, 6, 7, 12}) {
    std::vector<float> x;
    for (int64_t i = 0; i < n; ++i) x.push_back(static_cast<float>(i * 3 % 5));
    const auto half =
        RunOp("DFT", Operands(F({1, n, 1}, x)), {{"onesided", int64_t{1}}});
    ASSERT_TRUE(half.ok()) << half.status().message();
    EXPECT_EQ((*half)[0].shape(), (Shape{1, n / 2 + 1, 2}));
    const auto back =
        RunOp("DFT", Operands((*half)[0].Copy(), I64({}, {n})),
              {{"onesided", int64_t{1}}, {"inverse", int64_t{1}}});
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_THAT(Floats((*back)[0]), Near(x)) << n;
  }
}

TEST(Dft, OneWaveIsOneBin) {
  const auto y = RunOp("DFT", Operands(F({1, 4, 1}, {0, 1, 0, -1})));
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), Near({0, 0, 0, -2, 0, 0, 0, 2}));
}

TEST(Stft, WeighsEachFrameByTheWindow) {
  const auto y = RunOp("STFT", Operands(F({1, 4, 1}, {1, 2, 3, 4}),
                                        I64({}, {2}), F({2}, {1, 10})));
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_EQ((*y)[0].shape(), (Shape{1, 2, 2, 2}));
  EXPECT_THAT(Floats((*y)[0]), Near({21, 0, -19, 0, 43, 0, -37, 0}));
}

TEST(Windows, ArePeriodicUnlessAskedOtherwise) {
  EXPECT_THAT(Floats((*RunOp("HannWindow", Operands(I64({}, {4}))))[0]),
              Near({0, 0.5f, 1, 0.5f}));
  EXPECT_THAT(Floats((*RunOp("HammingWindow", Operands(I64({}, {2}))))[0]),
              Near({4 / 46.0f, 1}));
  EXPECT_THAT(Floats((*RunOp("BlackmanWindow", Operands(I64({}, {3})),
                             {{"periodic", int64_t{0}}}))[0]),
              Near({0, 1, 0}));
}

TEST(Det, SwapsRowsForItsPivots) {
  const auto y = RunOp("Det", Operands(F({2, 2, 2}, {0, 2, 3, 4, 1, 2, 2, 4})));
  ASSERT_TRUE(y.ok()) << y.status().message();
  EXPECT_THAT(Floats((*y)[0]), Near({-6, 0}));
}

TEST(Random, ASeedRepeatsItsNumbers) {
  const Attrs attrs = {{"shape", std::vector<int64_t>{100}}, {"seed", 3.0}};
  const auto a = RunOp("RandomUniform", {}, attrs);
  const auto b = RunOp("RandomUniform", {}, attrs);
  ASSERT_TRUE(a.ok()) << a.status().message();
  EXPECT_EQ(Floats((*a)[0]), Floats((*b)[0]));
  EXPECT_THAT(Floats((*a)[0]),
              Each(::testing::AllOf(::testing::Ge(0), ::testing::Le(1))));
  const auto sure = RunOp("Bernoulli", Operands(F({3}, {0, 1, 1})));
  EXPECT_THAT(Floats((*sure)[0]), ElementsAre(0, 1, 1));
}

}  // namespace
}  // namespace millrace::models::graph
