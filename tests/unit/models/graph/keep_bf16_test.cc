// Values kept in bf16 between layers: which, and that results have the bits of
// values that nodes of their own round.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "models/cpu/isa.h"
#include "models/graph/execution_context.h"
#include "models/graph/import.h"
#include "models/graph/sample_inputs.h"
#include "tests/unit/models/graph/graph_maker.h"

namespace millrace::models::graph {
namespace {

// Runs in bf16, on one thread or two, with values kept or rounded and kept in
// f32; rows together.
std::unique_ptr<ExecutionContext> Make(const Graph& graph, bool keep,
                                       int threads) {
  InstanceOptions options;
  options.rows_apart = false;
  options.precision = Precision::kBf16;
  options.keep_bf16 = keep;
  const int last = std::thread::hardware_concurrency() > 1 ? 1 : 0;
  if (threads == 2) options.cpus = {0, last};
  auto context = CreateInstance(graph.Copy(), options);
  EXPECT_TRUE(context.ok()) << context.status().ToString();
  return *std::move(context);
}

// The same bits with and without; returns the plan that keeps.
std::string ExpectSameBits(const Graph& graph,
                           const std::vector<Tensor>& inputs) {
  std::string text;
  const auto all_f32 = Make(graph, false, 1);
  const auto want = all_f32->Run(inputs);
  EXPECT_TRUE(want.ok()) << want.status().ToString();
  EXPECT_EQ(all_f32->PlanText().find("of bf16"), std::string::npos);
  EXPECT_EQ(all_f32->PlanText().find("to bf16"), std::string::npos);
  for (const int threads : {1, 2}) {
    const auto context = Make(graph, true, threads);
    const auto got = context->Run(inputs);
    EXPECT_TRUE(got.ok()) << got.status().ToString();
    if (!got.ok() || !want.ok()) return "";
    for (size_t i = 0; i < want->size(); ++i) {
      const Tensor& a = (*got)[i];
      const Tensor& b = (*want)[i];
      EXPECT_EQ(a.dtype(), b.dtype());
      EXPECT_EQ(a.num_bytes(), b.num_bytes());
      EXPECT_EQ(
          std::memcmp(a.bytes(), b.bytes(), static_cast<size_t>(b.num_bytes())),
          0)
          << "output " << i << " of " << threads << " threads";
    }
    text = context->PlanText();
  }
  return text;
}

class KeepBf16Test : public testing::Test {
 protected:
  void SetUp() override {
    if (FindBf16Products("auto") == nullptr) {
      GTEST_SKIP() << "this CPU has no fast products of bf16";
    }
  }

  ValueId Linear(ValueId x, int64_t k, int64_t n) {
    const ValueId y = m_.Node("MatMul", {x, m_.Weight({k, n})});
    return m_.Node("Add", {y, m_.Weight({n})});
  }
  ValueId Conv(ValueId x, int64_t from, int64_t to, int64_t kernel,
               int64_t group = 1) {
    return m_.Node(
        "Conv", {x, m_.Weight({to, from / group, kernel, kernel})},
        {{"group", group}, {"pads", std::vector<int64_t>(4, kernel / 2)}});
  }
  std::string Text(ValueId y) {
    m_.graph.AddOutput("y", y);
    return ExpectSameBits(m_.graph, m_.Inputs());
  }

  GraphMaker m_;
};

TEST_F(KeepBf16Test, LayersPassOnWhatTheNextOneRounds) {
  const ValueId x = m_.Input({37, 64});
  ValueId y = m_.Node("LayerNormalization", {x, m_.Weight({64})});
  y = m_.Node("Gelu", {Linear(y, 64, 70)});
  y = m_.Node("Add", {Linear(y, 70, 64), x});
  const std::string text = Text(y);
  EXPECT_NE(text.find("LayerNormalization 37 x 64, to bf16"),
            std::string::npos);
  EXPECT_NE(text.find("gelu, of bf16, to bf16"), std::string::npos) << text;
  EXPECT_NE(text.find("+residual, of bf16\n"), std::string::npos) << text;
}

// Sums wait elsewhere, for whole panels and for parts of one.
TEST_F(KeepBf16Test, LongSumsAreRoundedAtTheirEnd) {
  ValueId y = m_.Node("Relu", {Linear(m_.Input({205, 4000}), 4000, 90)});
  y = Linear(y, 90, 7);
  EXPECT_EQ(Count(Text(y), "to bf16"), 1);
}

TEST_F(KeepBf16Test, ResidualsOfLinearLayersAndResultsStayInF32) {
  const ValueId x = m_.Input({5, 64});
  const ValueId a = Linear(x, 64, 64);
  const ValueId b = Linear(a, 64, 64);
  m_.graph.AddOutput("b", b);
  EXPECT_EQ(Count(Text(m_.Node("Add", {Linear(b, 64, 64), a})), "bf16"), 0);
}

TEST_F(KeepBf16Test, LayersInF32ReadF32) {
  const ValueId a = Linear(m_.Input({5, 64}), 64, 64);
  m_.graph.AddOutput("y", Linear(a, 64, 64));
  InstanceOptions options;
  options.precision = Precision::kBf16;
  options.f32_layers = {"MatMul#2"};
  auto context = CreateInstance(m_.graph.Copy(), options);
  ASSERT_TRUE(context.ok());
  ASSERT_TRUE((*context)->Run(m_.Inputs()).ok());
  EXPECT_EQ(Count((*context)->PlanText(), "bf16"), 0);
}

// Products take pairs of values.
TEST_F(KeepBf16Test, OddRowsStayInF32) {
  const ValueId a = Linear(m_.Input({5, 64}), 64, 63);
  EXPECT_EQ(Count(Text(Linear(a, 63, 8)), "bf16"), 0);
}

TEST_F(KeepBf16Test, ConvolutionsOfAllKindsReadIt) {
  for (const int64_t kernel : {1, 3}) {
    for (const int64_t size : {9, 40}) {
      for (const int64_t group : {1, 2}) {
        m_ = GraphMaker();
        ValueId y = m_.Input({2, 6, size, size});
        y = m_.Node("Relu", {Conv(y, 6, 20, 3)});
        EXPECT_EQ(Count(Text(Conv(y, 20, 34, kernel, group)), "to bf16"), 1);
      }
    }
  }
}

// They round what they make, of all channels or of a member's; kernels that
// slide over pixels and others.
TEST_F(KeepBf16Test, DepthwiseConvolutionsReadAndWriteIt) {
  for (const int64_t size : {1, 9, 21}) {
    for (const int64_t kernel : {3, 5, 11}) {
      m_ = GraphMaker();
      const int64_t n = 90;
      ValueId y = Conv(m_.Input({1, 8, size, size}), 8, n, 1);
      y = m_.Node("Relu", {Conv(y, n, n, kernel, n)});
      const std::string text = Text(Conv(y, n, 12, 1));
      EXPECT_EQ(Count(text, "Depthwise"), 1) << text;
      EXPECT_EQ(Count(text, "to bf16"), 2) << text;
      EXPECT_EQ(Count(text, "of bf16"), 2) << text;
    }
  }
}

TEST_F(KeepBf16Test, DepthwiseConvolutionsInF32ReadF32) {
  const ValueId a = Conv(m_.Input({1, 8, 9, 9}), 8, 16, 1);
  m_.graph.AddOutput("y", Conv(a, 16, 16, 3, 16));
  InstanceOptions options;
  options.precision = Precision::kBf16;
  options.f32_layers = {"Conv#2"};
  auto context = CreateInstance(m_.graph.Copy(), options);
  ASSERT_TRUE(context.ok());
  ASSERT_TRUE((*context)->Run(m_.Inputs()).ok());
  EXPECT_EQ(Count((*context)->PlanText(), "bf16"), 0);
}

// A chain of blocks, whose sums are read as factors and as residuals: before
// and behind the function, in panels and in parts of one.
TEST_F(KeepBf16Test, ConvolutionsAddResidualsInIt) {
  for (const char* function : {"Relu", "HardSwish", "Tanh"}) {
    for (const bool first : {false, true}) {
      m_ = GraphMaker();
      const int64_t n = 70;
      ValueId y = Conv(m_.Input({2, 8, 13, 13}), 8, n, 1);
      for (int block = 0; block < 2; ++block) {
        ValueId z = Conv(m_.Node("Relu", {Conv(y, n, 32, 3)}), 32, n, 1);
        if (first) {
          y = m_.Node(function, {m_.Node("Add", {z, y})});
        } else {
          y = m_.Node("Add", {m_.Node(function, {z}), y});
        }
      }
      const std::string text = Text(Conv(y, n, 12, 1));
      EXPECT_EQ(Count(text, "+residual of bf16"), 2) << text;
      EXPECT_EQ(Count(text, "to bf16"), 5) << text;
    }
  }
}

// The first block's residual is a result as well.
TEST_F(KeepBf16Test, ResidualsThatOthersReadStayInF32) {
  const ValueId x = Conv(m_.Input({2, 8, 13, 13}), 8, 32, 1);
  m_.graph.AddOutput("x", x);
  const ValueId y = m_.Node("Add", {Conv(x, 32, 32, 3), x});
  EXPECT_EQ(Count(Text(Conv(y, 32, 12, 1)), "residual of bf16"), 0);
}

TEST_F(KeepBf16Test, TheGreatestValueIsThatOfRoundedOnes) {
  const ValueId y = Conv(m_.Input({2, 3, 21, 21}), 3, 20, 3);
  const ValueId pooled = m_.Node("MaxPool", {y},
                                 {{"kernel_shape", std::vector<int64_t>{3, 3}},
                                  {"strides", std::vector<int64_t>{2, 2}},
                                  {"pads", std::vector<int64_t>(4, 1)}});
  const std::string text = Text(Conv(pooled, 20, 12, 1));
  EXPECT_NE(text.find("kernel 3x3, of bf16, to bf16"), std::string::npos)
      << text;
}

TEST_F(KeepBf16Test, TransposedConvolutionsReadAndWriteIt) {
  const ValueId y = m_.Node("Relu", {Conv(m_.Input({2, 8, 9, 9}), 8, 16, 3)});
  const ValueId up =
      m_.Node("ConvTranspose", {y, m_.Weight({16, 10, 2, 2}), m_.Weight({10})},
              {{"strides", std::vector<int64_t>{2, 2}}});
  const std::string text = Text(Conv(up, 10, 12, 3));
  EXPECT_EQ(Count(text, "to bf16"), 2) << text;
  EXPECT_EQ(Count(text, "of bf16"), 2) << text;
}

// Whatever the scale is, and with several chunks of keys.
TEST_F(KeepBf16Test, AttentionReadsAndWritesIt) {
  for (const int64_t d : {16, 24}) {
    for (const int64_t keys : {9, 1100}) {
      m_ = GraphMaker();
      const ValueId x = m_.Input({2, 9, 48});
      const ValueId from = m_.Input({2, keys, 48});
      const auto heads = [&](ValueId of, int64_t size) {
        ValueId y = Linear(of, 48, 3 * size);
        y = m_.Node("Reshape", {y, m_.Ints({0, 0, 3, size})});
        return m_.Node("Transpose", {y},
                       {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
      };
      const ValueId q = heads(x, d);
      const ValueId k = heads(from, d);
      ValueId y = m_.Node("Attention", {q, k, heads(from, 20)});
      y = m_.Node("Transpose", {y},
                  {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
      y = m_.Node("Reshape", {y, m_.Ints({0, 0, 60})});
      const std::string text = Text(Linear(y, 60, 10));
      EXPECT_EQ(
          Count(text, "keys x " + std::to_string(d) + ", of bf16, to bf16"), 1)
          << text;
      EXPECT_EQ(Count(text, "to bf16"), 4) << text;
    }
  }
}

// Copies of pixels stay in bf16, mixtures are made of f32.
TEST_F(KeepBf16Test, ResizedImages) {
  for (const bool copies : {false, true}) {
    m_ = GraphMaker();
    const ValueId y = Conv(m_.Input({2, 8, 5, 7}), 8, 18, 3);
    const ValueId up =
        m_.Node("Resize", {y, kNoValue, kNoValue, m_.Ints({2, 18, 12, 14})},
                {{"mode", copies ? "nearest" : "linear"},
                 {"coordinate_transformation_mode", "asymmetric"}});
    const std::string text = Text(Conv(up, 18, 12, 3));
    EXPECT_EQ(Count(text, "to bf16"), copies ? 2 : 1) << text;
    EXPECT_EQ(Count(text, "of bf16"), copies ? 2 : 1) << text;
  }
}

// Both parts or neither.
TEST_F(KeepBf16Test, WhatIsJoinedIsOfOneType) {
  for (const bool both : {false, true}) {
    m_ = GraphMaker();
    const ValueId x = m_.Input({2, 8, 9, 9});
    const ValueId a = Conv(x, 8, 16, 1);
    const ValueId b = both ? Conv(x, 8, 24, 3) : m_.Input({2, 24, 9, 9});
    const ValueId joined = m_.Node("Concat", {a, b}, {{"axis", int64_t{1}}});
    const std::string text = Text(Conv(joined, 40, 12, 3));
    EXPECT_EQ(Count(text, "to bf16"), both ? 2 : 0) << text;
    EXPECT_EQ(Count(text, "of bf16"), both ? 1 : 0) << text;
  }
}

class KeepBf16Networks : public testing::TestWithParam<std::string> {};

TEST_P(KeepBf16Networks, AreTheSameBits) {
  auto graph = ImportGraph("tests/data/graph/" + GetParam(), nullptr);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  std::map<std::string, int64_t> sizes;
  for (const auto& name : SizeNames(graph->inputs, graph->symbols)) {
    sizes[name] = 3;
  }
  const auto inputs =
      SampleInputs(graph->inputs, graph->symbols, {.sizes = sizes});
  ASSERT_TRUE(inputs.ok()) << inputs.status().ToString();
  const std::string text = ExpectSameBits(*graph, *inputs);
  if (HasBf16("")) {
    EXPECT_NE(text.find("of bf16"), std::string::npos) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, KeepBf16Networks,
                         testing::Values("resnet50.pt2",
                                         "mobilenet_v3_large.core.pt2",
                                         "densenet121.pt2", "unet.ts.onnx",
                                         "convnext_tiny.pt2", "vit_b_16.pt2",
                                         "swin_t.onnx", "speech_conv.pt2",
                                         "minilm.onnx", "gpt_small.pt2"),
                         [](const auto& of) {
                           std::string name = of.param;
                           for (char& c : name) c = c == '.' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace millrace::models::graph
