// What a Concat joins is made side by side: no step copies it, and no bit of a
// result shows it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "models/cpu/isa.h"
#include "tests/support/vector_isa.h"
#include "tests/unit/models/graph/graph_maker.h"

namespace millrace::models::graph {
namespace {

using Ints = std::vector<int64_t>;

void ExpectSameTensors(const std::vector<Tensor>& got,
                       const std::vector<Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(got[i].shape(), want[i].shape());
    ASSERT_EQ(got[i].dtype(), want[i].dtype());
    EXPECT_EQ(std::memcmp(got[i].bytes(), want[i].bytes(),
                          static_cast<size_t>(want[i].num_bytes())),
              0)
        << "output " << i;
  }
}

class JoinedTest : public testing::Test {
 protected:
  ValueId Conv(ValueId x, int64_t from, int64_t to, int64_t kernel = 3,
               int64_t group = 1) {
    const ValueId y = m_.Node(
        "Conv",
        {x, m_.Weight({to, from / group, kernel, kernel}), m_.Weight({to})},
        {{"group", group}, {"pads", Ints(4, kernel / 2)}});
    return m_.Node("Relu", {y});
  }
  // Sums over channels that no layer takes along.
  ValueId Norm(ValueId x, int64_t channels) {
    const ValueId y = m_.Node("Mul", {x, m_.Weight({1, channels, 1, 1})});
    return m_.Node("Relu", {m_.Node("Add", {y, m_.Weight({channels, 1, 1})})});
  }
  ValueId Concat(std::vector<ValueId> parts, int64_t axis = 1) {
    return m_.Node("Concat", std::move(parts), {{"axis", axis}});
  }
  void Output(ValueId y) { m_.graph.AddOutput("y", y); }

  std::unique_ptr<ExecutionContext> Make(bool joins, int threads,
                                         const std::string& isa = "") {
    InstanceOptions options;
    options.isa = isa;
    options.precision = precision_;
    options.joins = joins;
    const int last = std::thread::hardware_concurrency() > 1 ? 1 : 0;
    if (threads == 2) options.cpus = {0, last};
    auto context = CreateInstance(m_.graph.Copy(), options);
    EXPECT_TRUE(context.ok()) << context.status().ToString();
    return *std::move(context);
  }

  // The same bits as with copies, on one thread and two, and nearly what the
  // interpreter gives; how many Concats are left.
  int CopiesLeft(double tolerance = 2e-5) {
    const auto copies = Make(false, 1);
    const auto want = copies->Run(m_.Inputs());
    EXPECT_TRUE(want.ok()) << want.status().ToString();
    EXPECT_NE(copies->PlanText().find("Concat"), std::string::npos);
    for (const int threads : {1, 2}) {
      const auto context = Make(true, threads);
      // What another run left in the arena is of no account.
      for (int run = 0; run < 2; ++run) {
        const auto got = context->Run(m_.Inputs());
        EXPECT_TRUE(got.ok()) << got.status().ToString();
        if (got.ok() && want.ok()) ExpectSameTensors(*got, *want);
      }
      text_ = context->PlanText();
    }
    if (precision_ == Precision::kF32) m_.ExpectSame(tolerance);
    return Count(text_, "Concat");
  }

  GraphMaker m_;
  Precision precision_ = Precision::kF32;
  std::string text_;  // of the plan that joins
};

TEST_F(JoinedTest, TwoBranchesWriteSideBySide) {
  const ValueId x = Conv(m_.Input({2, 3, 11, 13}), 3, 20);
  const ValueId a = Conv(x, 20, 24, 1);
  const ValueId b = Conv(x, 20, 40);
  Output(Conv(Concat({a, b}), 64, 10));
  EXPECT_EQ(CopiesLeft(), 0) << text_;
}

TEST_F(JoinedTest, EveryStepOnImagesWritesAndReadsAtADistance) {
  const ValueId x = Conv(m_.Input({2, 3, 16, 12}), 3, 32);
  const ValueId low = m_.Node(
      "MaxPool", {x}, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}});
  const ValueId side = m_.Node(
      "ConvTranspose", {low, m_.Weight({32, 64, 2, 2}), m_.Weight({64})},
      {{"strides", Ints{2, 2}}});
  const ValueId phases =
      m_.Node("ConvTranspose", {low, m_.Weight({32, 5, 4, 4}), m_.Weight({5})},
              {{"strides", Ints{2, 2}}, {"pads", Ints(4, 1)}});
  Tensor scales = Tensor::Make(DType::kF32, {4});
  for (const int i : {0, 1, 2, 3}) scales.data<float>()[i] = i < 2 ? 1 : 2;
  const ValueId by = m_.graph.AddConstant("scales", std::move(scales));
  const ValueId nearest =
      m_.Node("Resize", {low, kNoValue, by}, {{"mode", "nearest"}});
  const ValueId linear =
      m_.Node("Resize", {low, kNoValue, by}, {{"mode", "linear"}});
  const ValueId depthwise = Conv(x, 32, 32, 3, 32);
  const ValueId groups = Conv(x, 32, 48, 3, 4);
  const ValueId mean = m_.Node(
      "AveragePool", {x}, {{"kernel_shape", Ints{3, 3}}, {"pads", Ints(4, 1)}});
  const ValueId sum = Norm(x, 32);
  const std::vector<ValueId> parts = {side,      phases, nearest, linear,
                                      depthwise, groups, mean,    sum};
  // Each is read by itself, too.
  std::vector<ValueId> more;
  const int64_t channels[] = {64, 5, 32, 32, 32, 48, 32, 32};
  for (size_t i = 0; i < parts.size(); ++i) {
    more.push_back(Conv(parts[i], channels[i], 7));
  }
  more.push_back(m_.Node("MaxPool", {depthwise},
                         {{"kernel_shape", Ints{3, 3}}, {"pads", Ints(4, 1)}}));
  more.push_back(m_.Node("AveragePool", {groups},
                         {{"kernel_shape", Ints{3, 3}}, {"pads", Ints(4, 1)}}));
  more.push_back(Conv(linear, 32, 32, 3, 32));
  more.push_back(Conv(linear, 32, 12, 1));
  more.push_back(Conv(mean, 32, 16, 3, 4));
  more.push_back(Norm(side, 64));
  more.push_back(Conv(Concat(parts), 277, 9));
  for (const ValueId y : more) Output(m_.Node("GlobalAveragePool", {y}));
  for (const ValueId y : {nearest, sum}) {
    Output(m_.Node("GlobalAveragePool", {y}));
  }
  EXPECT_EQ(CopiesLeft(1e-4), 0) << text_;
}

// As dense blocks do: each Concat has the parts of the one before, and one
// more.
TEST_F(JoinedTest, AChainOfPrefixesIsOneStorage) {
  std::vector<ValueId> parts = {Conv(m_.Input({2, 3, 9, 9}), 3, 32)};
  int64_t channels = 32;
  for (int layer = 0; layer < 4; ++layer) {
    const ValueId all = layer == 0 ? parts[0] : Concat(parts);
    parts.push_back(
        Conv(Conv(Norm(all, channels), channels, 24, 1), 24, 8 + layer));
    channels += 8 + layer;
  }
  Output(m_.Node("GlobalAveragePool", {Norm(Concat(parts), channels)}));
  EXPECT_EQ(CopiesLeft(), 0) << text_;
}

TEST_F(JoinedTest, AConcatOfConcatsIsOneStorage) {
  ValueId y = Conv(m_.Input({2, 3, 9, 9}), 3, 16);
  int64_t channels = 16;
  for (int layer = 0; layer < 3; ++layer) {
    y = Concat({y, Conv(Norm(y, channels), channels, 8)});
    channels += 8;
  }
  Output(Conv(y, channels, 5));
  EXPECT_EQ(CopiesLeft(), 0) << text_;
}

// The parts of a part are made last, and waited for.
TEST_F(JoinedTest, ReadersWaitForThePartsOfParts) {
  const ValueId x = Conv(m_.Input({1, 3, 40, 9}), 3, 16);
  const ValueId later = Conv(x, 16, 16);
  const ValueId inner = Concat({Conv(later, 16, 8), Conv(later, 16, 24)});
  Output(Conv(Concat({inner, x}), 48, 5));
  EXPECT_EQ(CopiesLeft(), 0) << text_;
}

TEST_F(JoinedTest, WhatTheCallerGetsOrGaveIsCopiedAndTheRestIsNot) {
  const ValueId x = Conv(m_.Input({1, 3, 9, 9}), 3, 16);
  const ValueId a = m_.Node("Identity", {Conv(x, 16, 16)});
  const ValueId b = Conv(x, 16, 48);
  Output(Conv(Concat({a, b}), 64, 5));
  Output(a);
  EXPECT_EQ(CopiesLeft(), 1) << text_;
  EXPECT_EQ(Count(text_, "Concat FP32 [1, 9, 9, 16] -> FP32 [1, 9, 9, 64]"), 1)
      << text_;
}

TEST_F(JoinedTest, AResultMayBeTheStorage) {
  const ValueId x = m_.Input({7, 24});
  const auto linear = [&](int64_t n) {
    return m_.Node("MatMul", {x, m_.Weight({24, n})});
  };
  Output(Concat({linear(40), linear(3), linear(70)}));
  EXPECT_EQ(CopiesLeft(), 0) << text_;
}

TEST_F(JoinedTest, AValueThatIsJoinedTwiceIsCopiedOnce) {
  const ValueId x = Conv(m_.Input({1, 3, 9, 9}), 3, 16);
  const ValueId a = Conv(x, 16, 32);
  Output(Conv(Concat({a, Conv(x, 16, 8), a}), 72, 5));
  EXPECT_EQ(CopiesLeft(), 1) << text_;
  EXPECT_EQ(Count(text_, "Concat FP32 [1, 9, 9, 32] -> "), 1) << text_;
}

TEST_F(JoinedTest, AValueOfTwoConcatsLiesInOne) {
  const ValueId x = Conv(m_.Input({1, 3, 9, 9}), 3, 16);
  const ValueId a = Conv(x, 16, 32);
  const ValueId b = Conv(x, 16, 8);
  Output(Conv(Concat({a, b}), 40, 5));
  Output(Conv(Concat({b, a}), 40, 6));
  EXPECT_EQ(CopiesLeft(), 1) << text_;
}

// Pieces behind each other need no distance: any step makes them, under any
// name.
TEST_F(JoinedTest, PiecesOfOneRowAreMadeByAnyStep) {
  const ValueId x = m_.Input({1, 6, 16});
  const ValueId a = m_.Node("Softmax", {x}, {{"axis", int64_t{-1}}});
  const ValueId b = m_.Node("CumSum", {x, m_.Ints({1})});
  const ValueId c =
      m_.Node("Reshape", {m_.Node("Sin", {b}), m_.Ints({1, 12, 8})});
  const ValueId d = m_.Node("Reshape", {c, m_.Ints({1, 6, 16})});
  const ValueId y = Concat({a, b, d, m_.Weight({1, 1, 16})});
  Output(m_.Node("MatMul", {y, m_.Weight({16, 9})}));
  EXPECT_EQ(CopiesLeft(), 1) << text_;
  EXPECT_EQ(Count(text_, "Concat FP32 [1, 1, 16] -> FP32 [1, 19, 16]"), 1)
      << text_;
}

// A step of one member writes beside one of the other.
TEST_F(JoinedTest, PartsOfTwoMembersAreReadBehindABarrier) {
  std::vector<ValueId> parts;
  const ValueId x = m_.Input({1, 4, 2000});
  for (int i = 0; i < 6; ++i) {
    parts.push_back(m_.Node(
        "CumSum", {m_.Node("Mul", {x, m_.Number(0.5f + i)}), m_.Ints({2})}));
  }
  Output(m_.Node("Tanh", {Concat(parts)}));
  EXPECT_EQ(CopiesLeft(1e-4), 0) << text_;
}

TEST_F(JoinedTest, ResidualsAreReadAtADistance) {
  const ValueId x = Conv(m_.Input({2, 3, 9, 9}), 3, 16);
  const ValueId a = Conv(x, 16, 16);
  const ValueId b =
      m_.Node("Add", {m_.Node("Conv", {x, m_.Weight({16, 16, 1, 1})}), a});
  Output(Conv(Concat({b, a}), 32, 5));
  EXPECT_EQ(CopiesLeft(), 0) << text_;
  EXPECT_EQ(Count(text_, "+residual"), 1) << text_;
}

TEST_F(JoinedTest, MapsBeyondTheCachesAreNotReadAtADistanceByPools) {
  const ValueId x = Conv(m_.Input({1, 3, 96, 96}), 3, 24);
  const ValueId y = Conv(Concat({x, Conv(x, 24, 24, 1)}), 48, 8);
  Output(m_.Node("MaxPool", {x}, {{"kernel_shape", Ints{2, 2}}}));
  Output(m_.Node("MaxPool", {y}, {{"kernel_shape", Ints{2, 2}}}));
  EXPECT_EQ(CopiesLeft(), 1) << text_;
}

TEST_F(JoinedTest, Bf16LiesSideBySideToo) {
  if (FindBf16Products("auto") == nullptr) {
    GTEST_SKIP() << "this CPU has no fast products of bf16";
  }
  precision_ = Precision::kBf16;
  const ValueId x = Conv(m_.Input({2, 3, 12, 14}), 3, 32);
  const ValueId low = m_.Node(
      "MaxPool", {x}, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}});
  const ValueId up = m_.Node("ConvTranspose", {low, m_.Weight({32, 64, 2, 2})},
                             {{"strides", Ints{2, 2}}});
  const ValueId in_f32 = Conv(x, 32, 32, 1);
  const ValueId deep = Conv(in_f32, 32, 32, 3, 32);
  Output(Conv(Concat({x, up, deep, Conv(x, 32, 18)}), 146, 10));
  Output(Conv(up, 64, 6));
  Output(Conv(deep, 32, 6, 1));
  EXPECT_EQ(CopiesLeft(), 0) << text_;
  EXPECT_GE(Count(text_, "to bf16"), 4) << text_;
}

// Values of 16 bits are read two at a time.
TEST_F(JoinedTest, Bf16BeginsAtEvenValues) {
  if (FindBf16Products("auto") == nullptr) {
    GTEST_SKIP() << "this CPU has no fast products of bf16";
  }
  precision_ = Precision::kBf16;
  const ValueId x = Conv(m_.Input({2, 3, 9, 9}), 3, 16);
  const ValueId a = Conv(x, 16, 5);
  const ValueId b = Conv(x, 16, 8);
  Output(Conv(Concat({a, b, Conv(x, 16, 5)}), 18, 4));
  Output(Conv(b, 8, 6, 1));
  EXPECT_EQ(CopiesLeft(), 1) << text_;
  EXPECT_EQ(Count(text_, "Concat BF16 [2, 9, 9, 8] BF16 [2, 9, 9, 5] ->"), 1)
      << text_;
}

TEST_F(JoinedTest, EveryTableGivesTheSame) {
  std::vector<ValueId> parts = {Conv(m_.Input({2, 3, 9, 9}), 3, 33)};
  parts.push_back(Conv(Norm(parts[0], 33), 33, 7));
  parts.push_back(Conv(Norm(Concat(parts), 40), 40, 64, 1));
  Output(Conv(Concat(parts), 104, 5));
  const auto want = Make(true, 1)->Run(m_.Inputs());
  ASSERT_TRUE(want.ok());
  for (const char* isa : {"scalar", kVectorIsa}) {
    const auto got = Make(true, 2, isa)->Run(m_.Inputs());
    ASSERT_TRUE(got.ok());
    ExpectSameTensors(*got, *want);
  }
}

// Each member has a plan, and storage, of its own.
TEST_F(JoinedTest, RowsOfABatchLieApart) {
  const int32_t n = m_.graph.AddSymbol("n");
  m_.graph.symbols[static_cast<size_t>(n)].min = 1;
  const ValueId x = m_.graph.AddInput(
      "x", DType::kF32,
      {{.symbol = n}, {.size = 3}, {.size = 20}, {.size = 20}});
  std::vector<ValueId> parts = {Conv(x, 3, 16)};
  for (int layer = 0; layer < 3; ++layer) {
    const int64_t channels = 16 + 8 * layer;
    const ValueId all = layer == 0 ? parts[0] : Concat(parts);
    parts.push_back(Conv(Norm(all, channels), channels, 8));
  }
  Output(Concat(parts));
  const auto copies = Make(false, 2);
  const auto joins = Make(true, 2);
  for (const int64_t batch : {5, 2, 8, 1}) {
    std::vector<Tensor> inputs;
    inputs.push_back(m_.Random({batch, 3, 20, 20}));
    const auto want = copies->Run(inputs);
    const auto got = joins->Run(inputs);
    ASSERT_TRUE(want.ok() && got.ok());
    ExpectSameTensors(*got, *want);
    EXPECT_NE(copies->PlanText().find("Concat"), std::string::npos);
    EXPECT_EQ(joins->PlanText().find("Concat"), std::string::npos);
    EXPECT_EQ(joins->PlanText().find("Each row") == std::string::npos,
              batch == 1);
  }
}

}  // namespace
}  // namespace millrace::models::graph
