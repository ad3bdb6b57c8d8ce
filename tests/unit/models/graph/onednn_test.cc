// Graphs whose layers oneDNN computes: as near to our kernels as f32 is, and a
// row's bits are its own whatever its batch-mates and the team.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "models/graph/backend_choice.h"
#include "models/graph/import.h"
#include "models/graph/sample_inputs.h"
#include "tests/unit/models/graph/graph_maker.h"

namespace millrace::models::graph {
namespace {

InstanceOptions Options(bool onednn, int threads = 1) {
  InstanceOptions options;
  const int last = std::thread::hardware_concurrency() > 1 ? 1 : 0;
  if (threads == 2) options.cpus = {0, last};
  options.onednn.all = onednn;
  return options;
}

std::unique_ptr<ExecutionContext> Context(const Graph& graph,
                                          const InstanceOptions& options) {
  auto context = CreateInstance(graph.Copy(), options);
  EXPECT_TRUE(context.ok()) << context.status().ToString();
  return context.ok() ? *std::move(context) : nullptr;
}

std::vector<Tensor> RunOf(const Graph& graph, const InstanceOptions& options,
                          const std::vector<Tensor>& inputs,
                          std::string* plan = nullptr) {
  const auto context = Context(graph, options);
  if (context == nullptr) return {};
  auto outputs = context->Run(inputs);
  EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
  if (plan != nullptr) *plan = context->PlanText();
  return outputs.ok() ? *std::move(outputs) : std::vector<Tensor>();
}

// Rows of the first axis of every tensor.
std::vector<Tensor> Rows(const std::vector<Tensor>& inputs,
                         const std::vector<int64_t>& order) {
  std::vector<Tensor> chosen;
  for (const Tensor& input : inputs) {
    Shape shape = input.shape();
    const int64_t bytes = input.num_bytes() / shape[0];
    shape[0] = static_cast<int64_t>(order.size());
    Tensor& rows = chosen.emplace_back(Tensor::Make(input.dtype(), shape));
    for (size_t i = 0; i < order.size(); ++i) {
      std::memcpy(rows.bytes() + static_cast<int64_t>(i) * bytes,
                  input.bytes() + order[i] * bytes, static_cast<size_t>(bytes));
    }
  }
  return chosen;
}

TensorSets Sets(std::vector<Tensor> only) {
  TensorSets sets;
  sets.push_back(std::move(only));
  return sets;
}

// ---- layers of our own making ----
class OneDnnGraph : public testing::Test, public GraphMaker {
 protected:
  // oneDNN and our kernels, with one thread and two; the plan's text.
  std::string ExpectNear(double tolerance) {
    std::string plan;
    for (const int threads : {1, 2}) {
      const auto got = RunOf(graph, Options(true, threads), Inputs(), &plan);
      const auto want = RunOf(graph, Options(false, threads), Inputs());
      EXPECT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i) {
        double worst = 0;
        double most = 0;
        for (int64_t j = 0; j < want[i].num_elements(); ++j) {
          const double w = want[i].data<float>()[j];
          most = std::max(most, std::abs(w));
          worst = std::max(worst, std::abs(got[i].data<float>()[j] - w));
        }
        EXPECT_GT(most, 0);
        EXPECT_LE(worst, tolerance * most);
      }
    }
    return plan;
  }
};

TEST_F(OneDnnGraph, LinearLayersOfRaggedRows) {
  for (const int64_t rows : {1, 5, 63, 100}) {
    OneDnnGraph::graph = Graph();
    GraphMaker maker;
    const ValueId x = maker.Input({rows, 70});
    const ValueId y =
        maker.Node("Add", {maker.Node("MatMul", {x, maker.Weight({70, 90})}),
                           maker.Weight({90})});
    maker.graph.AddOutput("y", maker.Node("Relu", {y}));
    std::string plan;
    const auto got =
        RunOf(maker.graph, Options(true, 2), maker.Inputs(), &plan);
    const auto want = RunOf(maker.graph, Options(false, 2), maker.Inputs());
    EXPECT_EQ(Count(plan, "oneDNN f32 product 70 -> 90 +bias relu"), 1) << plan;
    ASSERT_EQ(got.size(), 1u);
    for (int64_t i = 0; i < want[0].num_elements(); ++i) {
      ASSERT_NEAR(got[0].data<float>()[i], want[0].data<float>()[i], 1e-4);
    }
  }
}

TEST_F(OneDnnGraph, ConvolutionsWithResidualsAndFunctions) {
  const ValueId x = Input({2, 24, 30, 30});
  Attrs same = {{"pads", std::vector<int64_t>{1, 1, 1, 1}}};
  const ValueId a = Node(
      "Relu", {Node("Conv", {x, Weight({40, 24, 3, 3}), Weight({40})}, same)});
  const ValueId b =
      Node("Conv", {a, Weight({40, 40, 3, 3}), Weight({40})}, same);
  const ValueId c = Node("Relu", {Node("Add", {b, a})});
  const ValueId d =
      Node("HardSwish", {Node("Conv", {c, Weight({40, 1, 3, 3}), Weight({40})},
                              {{"pads", std::vector<int64_t>{1, 1, 1, 1}},
                               {"strides", std::vector<int64_t>{2, 2}},
                               {"group", int64_t{40}}})});
  graph.AddOutput("y", d);
  const std::string plan = ExpectNear(1e-4);
  EXPECT_EQ(Count(plan, "oneDNN f32 convolution"), 3) << plan;
  EXPECT_EQ(Count(plan, "+residual"), 1) << plan;
}

TEST_F(OneDnnGraph, SignalsAreCutIntoBandsToo) {
  const ValueId x = Input({3, 32, 2000});
  graph.AddOutput("y", Node("Conv", {x, Weight({64, 32, 5}), Weight({64})},
                            {{"pads", std::vector<int64_t>{2, 2}}}));
  const std::string plan = ExpectNear(1e-4);
  // More calls than signals.
  EXPECT_EQ(Count(plan, "oneDNN f32 convolution"), 1) << plan;
  EXPECT_EQ(Count(plan, ", 3 calls"), 0) << plan;
}

TEST_F(OneDnnGraph, OurKernelsKeepWhatOneDnnHasNot) {
  const ValueId x = Input({3, 50});
  // Softplus behind a layer.
  const ValueId y = Node("Softplus", {Node("MatMul", {x, Weight({50, 40})})});
  graph.AddOutput("y", y);
  const std::string plan = ExpectNear(1e-4);
  EXPECT_EQ(Count(plan, "oneDNN"), 0) << plan;
}

TEST_F(OneDnnGraph, ServesTheShapesThatAreNamedAlone) {
  const ValueId x = Input({8, 64});
  const ValueId y = Node("MatMul", {x, Weight({64, 48})});
  graph.AddOutput("y", Node("MatMul", {y, Weight({48, 32})}));
  InstanceOptions options = Options(false);
  options.onednn.shapes = {"f32 product 48 -> 32"};
  std::string plan;
  RunOf(graph, options, Inputs(), &plan);
  EXPECT_EQ(Count(plan, "oneDNN"), 1) << plan;
  EXPECT_EQ(Count(plan, "oneDNN f32 product 48 -> 32"), 1) << plan;
}

// A quantised convolution: a step of its scale apart at most, here and there.
TEST_F(OneDnnGraph, ConvolutionsOnBytes) {
  const auto zero = [&](DType dtype, std::vector<uint8_t> values) {
    Tensor tensor =
        values.size() == 1
            ? Tensor::Make(dtype, {})
            : Tensor::Make(dtype, {static_cast<int64_t>(values.size())});
    std::memcpy(tensor.bytes(), values.data(), values.size());
    return graph.AddConstant("zero", std::move(tensor));
  };
  const auto rounded = [&](ValueId x, float scale, uint8_t at) {
    const ValueId q =
        Node("QuantizeLinear", {x, Number(scale), zero(DType::kU8, {at})});
    return Node("DequantizeLinear", {q, Number(scale), zero(DType::kU8, {at})});
  };
  const auto weight = [&](const Shape& shape) {
    Tensor bytes = Tensor::Make(DType::kI8, shape);
    for (int64_t i = 0; i < bytes.num_elements(); ++i) {
      bytes.data<int8_t>()[i] = static_cast<int8_t>(i * 37 % 101 - 50);
    }
    Tensor scales = Tensor::Make(DType::kF32, {shape[0]});
    for (int64_t i = 0; i < shape[0]; ++i) {
      scales.data<float>()[i] = 0.002f + 0.0001f * static_cast<float>(i % 7);
    }
    return Node("DequantizeLinear",
                {graph.AddConstant("w", std::move(bytes)),
                 graph.AddConstant("s", std::move(scales)),
                 zero(DType::kI8,
                      std::vector<uint8_t>(static_cast<size_t>(shape[0]), 0))},
                {{"axis", int64_t{0}}});
  };
  Attrs same = {{"pads", std::vector<int64_t>{1, 1, 1, 1}}};
  const ValueId x = rounded(Input({2, 16, 12, 12}), 0.03f, 128);
  const ValueId a = rounded(
      Node("Relu",
           {Node("Conv", {x, weight({32, 16, 3, 3}), Weight({32})}, same)}),
      0.02f, 0);
  const ValueId b = Node("Conv", {a, weight({32, 32, 1, 1}), Weight({32})});
  const ValueId y =
      rounded(Node("Add", {rounded(b, 0.02f, 120), a}), 0.03f, 90);
  graph.AddOutput("y", y);
  std::string plan;
  const auto got = RunOf(graph, Options(true, 2), Inputs(), &plan);
  const auto want = RunOf(graph, Options(false, 2), Inputs());
  ASSERT_EQ(got.size(), 1u);
  if (Count(plan, "oneDNN u8 convolution") == 0) {
    GTEST_SKIP() << "oneDNN has no int8 for this CPU: " << plan;
  }
  int64_t apart = 0;
  for (int64_t i = 0; i < want[0].num_elements(); ++i) {
    const float difference =
        std::abs(got[0].data<float>()[i] - want[0].data<float>()[i]);
    ASSERT_LE(difference, 0.0301f);
    apart += difference > 0.001f;
  }
  EXPECT_LE(apart, want[0].num_elements() / 50);
}

// ---- whole networks ----
class OneDnnNetwork : public testing::TestWithParam<std::string> {};

TEST_P(OneDnnNetwork, IsNearOursAndARowsBitsAreItsOwn) {
  constexpr int64_t kRows = 5;
  auto graph = ImportGraph("tests/data/graph/" + GetParam(), nullptr);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  std::map<std::string, int64_t> sizes;
  for (const auto& name : SizeNames(graph->inputs, graph->symbols)) {
    sizes[name] = kRows;
  }
  auto inputs = SampleInputs(graph->inputs, graph->symbols, {.sizes = sizes});
  ASSERT_TRUE(inputs.ok()) << inputs.status().ToString();
  const auto ours = RunOf(*graph, Options(false), *inputs);
  std::string plan;
  const auto want = RunOf(*graph, Options(true), *inputs, &plan);
  EXPECT_GT(Count(plan, "oneDNN"), 0) << plan;
  ASSERT_EQ(want.size(), ours.size());
  EXPECT_LE(ErrorOf(Sets(Rows(want, {0, 1, 2, 3, 4})),
                    Sets(Rows(ours, {0, 1, 2, 3, 4}))),
            1e-4);
  for (const int threads : {1, 2}) {
    const auto context = Context(*graph, Options(true, threads));
    for (const std::vector<int64_t>& order : std::vector<std::vector<int64_t>>{
             {0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {2, 2}, {1, 4, 0}, {3}}) {
      const auto got = context->Run(Rows(*inputs, order));
      ASSERT_TRUE(got.ok()) << got.status().ToString();
      for (size_t i = 0; i < want.size(); ++i) {
        const int64_t each = want[i].num_bytes() / kRows;
        for (size_t at = 0; at < order.size(); ++at) {
          EXPECT_EQ(
              std::memcmp((*got)[i].bytes() + static_cast<int64_t>(at) * each,
                          want[i].bytes() + order[at] * each,
                          static_cast<size_t>(each)),
              0)
              << threads << " threads, row " << order[at] << " of "
              << order.size();
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, OneDnnNetwork,
    testing::Values("resnet50.pt2", "mobilenet_v3_large.core.pt2",
                    "efficientnet_b0.onnx", "densenet121.pt2", "unet.ts.onnx",
                    "convnext_tiny.pt2", "vit_tiny.core.pt2", "swin_t.onnx",
                    "speech_conv.pt2", "minilm.onnx", "bert_base.core.pt2"),
    [](const auto& of) {
      std::string name = of.param;
      for (char& c : name) c = c == '.' ? '_' : c;
      return name;
    });

// ---- auto ----
TEST(ChooseBackend, KeepsOurKernelsWhereResultsMayNotDiffer) {
  auto graph = ImportGraph("tests/data/graph/resnet50.pt2", nullptr);
  ASSERT_TRUE(graph.ok());
  auto inputs = SampleInputs(*graph, {}, LeftOutSizes::kLeast);
  ASSERT_TRUE(inputs.ok());
  const TensorSets samples = Sets(*std::move(inputs));
  const auto exact = ChooseBackend(*graph, Options(false), samples, -1);
  ASSERT_TRUE(exact.ok()) << exact.status().ToString();
  EXPECT_FALSE(exact->use.any());
  EXPECT_GT(exact->possible, 5);
  const auto choice = ChooseBackend(*graph, Options(false), samples, 1e-4);
  ASSERT_TRUE(choice.ok()) << choice.status().ToString();
  EXPECT_LE(choice->chosen_ms, choice->millrace_ms);
  EXPECT_LE(choice->use.shapes.size(), static_cast<size_t>(choice->possible));
  EXPECT_FALSE(choice->use.all);
}

}  // namespace
}  // namespace millrace::models::graph
