// What contexts of one compiled graph share, and what the graph says of its
// batch.
#include "models/graph/compiled_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "models/graph/execution_context.h"
#include "models/graph/import.h"
#include "tests/unit/models/graph/graph_maker.h"

namespace millrace::models::graph {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;

// x [n, s, 256]: s tokens in each of n rows.
struct Tokens {
  GraphMaker m;
  int32_t n = m.graph.AddSymbol("n");
  int32_t s = m.graph.AddSymbol("s");
  ValueId x = kNoValue;

  Tokens() {
    m.graph.symbols[0].min = m.graph.symbols[1].min = 1;
    x = m.graph.AddInput("x", DType::kF32,
                         {{.symbol = n}, {.symbol = s}, {.size = 256}});
  }
  ValueId Layer(ValueId from) {
    const ValueId y = m.Node("MatMul", {from, m.Weight({256, 256})});
    return m.Node("Softmax", {m.Node("Add", {y, m.Weight({256})})});
  }
  void Output(ValueId y) { m.graph.AddOutput("y", y); }
  std::shared_ptr<CompiledGraph> Compile() {
    auto compiled = CompiledGraph::Create(m.graph.Copy(), {});
    EXPECT_TRUE(compiled.ok()) << compiled.status().ToString();
    return *std::move(compiled);
  }
};

std::vector<Tensor> One(const Tensor& tensor) {
  std::vector<Tensor> tensors;
  tensors.push_back(tensor.Share());
  return tensors;
}

config::CpuSet Pair() {
  return {0, std::thread::hardware_concurrency() > 1 ? 1 : 0};
}

void ExpectSameBits(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.shape(), want.shape());
  EXPECT_EQ(std::memcmp(got.bytes(), want.bytes(),
                        static_cast<size_t>(want.num_bytes())),
            0);
}

TEST(CompiledGraph, ContextsShareWeightsAndPlans) {
  Tokens t;
  t.Output(t.Layer(t.Layer(t.x)));
  const auto compiled = t.Compile();
  const Tensor x = t.m.Random({2, 5, 256});
  auto first = ExecutionContext::Create(compiled, {});
  ASSERT_TRUE(first->Run(One(x)).ok());
  const int64_t packed = compiled->packed_bytes();
  EXPECT_GE(packed, 2 * 256 * 256 * 4);
  auto second = ExecutionContext::Create(compiled, {});
  ASSERT_TRUE(second->Run(One(x)).ok());
  // A team of another size has plans of its own, and the same weights.
  auto pair = ExecutionContext::Create(compiled, {.cpus = Pair()});
  ASSERT_TRUE(pair->Run(One(x)).ok());
  EXPECT_EQ(compiled->packed_bytes(), packed);
}

TEST(CompiledGraph, OnePlanServesAllContextsOfOneTeamSize) {
  Tokens t;
  t.Output(t.Layer(t.x));
  const auto compiled = t.Compile();
  ComputePool one({}, "one");
  ComputePool another({}, "another");
  ComputePool two(Pair(), "two");
  const auto inputs = One(t.m.Random({1, 5, 256}));
  const auto plan = compiled->PlanFor(inputs, false, one);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(*plan, *compiled->PlanFor(inputs, false, another));
  EXPECT_NE(*plan, *compiled->PlanFor(inputs, false, two));
}

TEST(CompiledGraph, PlansAreDroppedByTheirBytesTheOldestFirst) {
  Tokens t;
  t.Output(t.Layer(t.x));
  ComputePool pool({}, "one");
  CompileOptions options;
  int64_t each = 0;
  {
    const auto compiled = t.Compile();
    ASSERT_TRUE(
        compiled->PlanFor(One(t.m.Random({1, 1, 256})), false, pool).ok());
    each = compiled->plan_bytes();
    ASSERT_GT(each, 0);
    // The weight is the graph's, not the plan's.
    EXPECT_LT(each, 256 * 256 * 4);
  }
  options.max_plan_bytes = 2 * each;
  const auto compiled = CompiledGraph::Create(t.m.graph.Copy(), options);
  ASSERT_TRUE(compiled.ok());
  const auto plan = [&](int64_t length) {
    const auto inputs = One(t.m.Random({1, length, 256}));
    return *(*compiled)->PlanFor(inputs, false, pool);
  };
  const auto one = plan(1);
  const auto two = plan(2);
  EXPECT_EQ(plan(1), one);
  const auto three = plan(3);
  EXPECT_EQ((*compiled)->num_plans(), 2);
  EXPECT_EQ((*compiled)->plan_bytes(), 2 * each);
  EXPECT_EQ(plan(1), one);
  EXPECT_EQ(plan(3), three);
  EXPECT_NE(plan(2), two) << "it was not used for the longest time";
}

// Under ThreadSanitizer this test also finds what contexts must not share.
TEST(CompiledGraph, ContextsRunAtTheSameTimeWithTheBitsOfOne) {
  Tokens t;
  ValueId y = t.Layer(t.Layer(t.x));
  y = t.m.Node("Concat", {y, t.x}, {{"axis", int64_t{2}}});
  t.Output(t.m.Node("CumSum", {y, t.m.Ints({2})}));
  const std::vector<Ints> sizes = {{1, 3, 256},  {4, 7, 256}, {2, 3, 256},
                                   {1, 64, 256}, {6, 7, 256}, {3, 1, 256}};
  std::vector<Tensor> inputs;
  std::vector<Tensor> want;
  const auto alone = ExecutionContext::Create(t.Compile(), {});
  for (const Ints& size : sizes) {
    inputs.push_back(t.m.Random(Shape(size)));
    auto result = alone->Run(One(inputs.back()));
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    want.push_back(std::move((*result)[0]));
  }
  // Few plans are kept, so that they are also made and dropped at that time.
  CompileOptions options;
  options.max_plan_bytes = 20000;
  const auto compiled = CompiledGraph::Create(t.m.graph.Copy(), options);
  ASSERT_TRUE(compiled.ok());
  const auto serve = [&](const config::CpuSet& cpus, size_t step) {
    const auto context = ExecutionContext::Create(*compiled, {.cpus = cpus});
    for (size_t i = 0; i < 60; ++i) {
      const size_t at = i * step % sizes.size();
      const auto got = context->Run(One(inputs[at]));
      ASSERT_TRUE(got.ok()) << got.status().ToString();
      ExpectSameBits((*got)[0], want[at]);
    }
  };
  std::thread other([&] { serve({}, 5); });
  serve(Pair(), 1);
  other.join();
}

// ---- batch_axis ----

TEST(CompiledGraph, RowsOfTokensAreABatch) {
  Tokens t;
  t.m.graph.symbols[0].max = 32;
  t.Output(t.Layer(t.x));
  const BatchAxis axis = t.Compile()->batch_axis();
  EXPECT_TRUE(axis.batchable) << axis.reason;
  EXPECT_EQ(axis.reason, "");
  EXPECT_EQ(axis.symbol, t.n);
  EXPECT_EQ(axis.min_rows, 1);
  EXPECT_EQ(axis.max_rows, 32);
}

std::string Reason(Tokens& t) {
  const BatchAxis axis = t.Compile()->batch_axis();
  EXPECT_FALSE(axis.batchable);
  return axis.reason;
}

TEST(CompiledGraph, AReasonSaysWhyRowsAreNoBatch) {
  {
    Tokens t;
    t.m.graph.inputs[0].dims[0] = {.size = 1};
    t.Output(t.Layer(t.x));
    EXPECT_EQ(Reason(t), "the first dimension of input 'x' is always 1");
  }
  {
    Tokens t;
    t.Output(t.m.Node("Softmax", {t.x}, {{"axis", int64_t{0}}}));
    EXPECT_THAT(Reason(t), HasSubstr("joins rows"));
  }
  {
    Tokens t;
    t.m.graph.symbols[0].max = 2;
    t.Output(t.Layer(t.x));
    EXPECT_EQ(Reason(t), "'n' is at most 2");
  }
  {
    Tokens t;
    const ValueId other = t.m.graph.AddInput("other", DType::kF32,
                                             {{.symbol = t.s}, {.size = 256}});
    t.Output(t.m.Node("Add", {t.x, other}));
    EXPECT_THAT(Reason(t), HasSubstr("of input 'x' and of 'other' differ"));
  }
  {
    Tokens t;
    t.Output(t.m.Node("Transpose", {t.x}, {{"perm", Ints{1, 0, 2}}}));
    EXPECT_THAT(Reason(t), HasSubstr("output 'y' has the shape"));
  }
  {
    // x[row - 1] is another row.
    Tokens t;
    t.m.graph.symbols[0].max = 64;
    const ValueId shape = t.m.Node("Shape", {t.x});
    const ValueId n = t.m.Node("Gather", {shape, t.m.Ints({0})});
    const ValueId scalar = t.m.Node("Squeeze", {n});
    const ValueId zero = t.m.graph.AddConstant("0", Tensor::Scalar(int64_t{0}));
    const ValueId one = t.m.graph.AddConstant("1", Tensor::Scalar(int64_t{1}));
    ValueId rows = t.m.Node("Range", {zero, scalar, one});
    rows = t.m.Node("Sub", {rows, one});
    t.Output(t.m.Node("Index", {t.x, rows}, {{"axes", Ints{0}}}));
    EXPECT_THAT(Reason(t), HasSubstr("(Index) depends on the number of rows"));
  }
  {
    Tokens t;
    t.Output(t.m.Node("NonZero", {t.x}));
    EXPECT_THAT(Reason(t), HasSubstr("cannot be known before it runs"));
  }
}

class Networks : public testing::TestWithParam<const char*> {};

TEST_P(Networks, AreBatchable) {
  const auto graph =
      ImportGraph(std::string("tests/data/graph/") + GetParam(), nullptr);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  const auto compiled = CompiledGraph::Create(graph->Copy(), {});
  ASSERT_TRUE(compiled.ok()) << compiled.status().ToString();
  const BatchAxis& axis = (*compiled)->batch_axis();
  EXPECT_TRUE(axis.batchable) << axis.reason;
}

INSTANTIATE_TEST_SUITE_P(
    Networks, Networks,
    testing::Values("resnet50.pt2", "mobilenet_v3_large.core.pt2",
                    "efficientnet_b0.onnx", "densenet121.pt2", "unet.ts.onnx",
                    "convnext_tiny.pt2", "speech_conv.pt2", "gpt_small.pt2",
                    "minilm.onnx", "minilm.pt2", "bert_base.onnx",
                    "bert_base.pt2", "distilbert.onnx", "distilbert.pt2"));

}  // namespace
}  // namespace millrace::models::graph
