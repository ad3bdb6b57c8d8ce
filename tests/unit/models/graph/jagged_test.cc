// Ranking models of tests/data/ranking, made by make_ranking.py: what PyTorch
// gave for ragged requests, and what is known of their features.
#include "models/graph/jagged.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models/files/npz.h"
#include "models/graph/execution_context.h"
#include "models/graph/import.h"
#include "models/graph/infer_and_fold.h"
#include "models/graph/sample_inputs.h"
#include "tests/unit/models/graph/run_op.h"

namespace millrace::models::graph {
namespace {

constexpr char kFolder[] = "tests/data/ranking/";
constexpr int kInputs = 8;

struct Request {
  std::vector<Tensor> inputs;
  Tensor want;
};

std::vector<Request> Requests(const std::string& model) {
  auto arrays = ReadNpz(kFolder + model + ".npz");
  EXPECT_TRUE(arrays.ok()) << arrays.status().ToString();
  std::map<std::string, Tensor*> by_name;
  for (auto& each : *arrays) by_name[each.name] = &each.tensor;
  std::vector<Request> requests;
  for (int k = 0;; ++k) {
    const std::string prefix = "r" + std::to_string(k) + "_";
    const auto want = by_name.find(prefix + "out0");
    if (want == by_name.end()) return requests;
    Request& request = requests.emplace_back();
    request.want = want->second->Share();
    for (int i = 0; i < kInputs; ++i) {
      const auto found = by_name.find(prefix + "in" + std::to_string(i));
      if (found != by_name.end())
        request.inputs.push_back(found->second->Share());
    }
  }
}

std::unique_ptr<ExecutionContext> Load(const std::string& model,
                                       InstanceOptions options = {}) {
  auto graph = ImportGraph(kFolder + model + ".pt2", nullptr);
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  auto context = CreateInstance(*std::move(graph), options);
  EXPECT_TRUE(context.ok()) << context.status().ToString();
  return *std::move(context);
}

double Difference(const Tensor& got, const Tensor& want) {
  EXPECT_EQ(got.shape(), want.shape());
  double most = 0;
  for (int64_t i = 0; i < want.num_elements(); ++i) {
    most = std::max(
        most, std::abs(double{got.data<float>()[i]} - want.data<float>()[i]));
  }
  return most;
}

TEST(Ranking, RaggedRequestsGetWhatPyTorchComputes) {
  // PyTorch rounds sums of tables in FP16 to 11 bits, of BF16 to 8 (the sums
  // are below 16); all else are sums of a dozen products in f32.
  const std::map<std::string, double> models = {
      {"dlrm", 1e-5},      {"end", 1e-5},         {"byte", 1e-5},
      {"half", 2e-3},      {"fixed", 1e-5},       {"modes", 1e-5},
      {"modes_end", 1e-5}, {"modes_fixed", 1e-5}, {"modes_half", 1e-2},
      {"modes_bf16", 8e-2}};
  for (const auto& [model, tolerance] : models) {
    for (const bool interpret : {false, true}) {
      InstanceOptions options;
      options.interpret = interpret;
      const auto context = Load(model, options);
      for (const Request& request : Requests(model)) {
        const auto got = context->Run(request.inputs);
        ASSERT_TRUE(got.ok()) << model << ": " << got.status().ToString();
        EXPECT_LE(Difference((*got)[0], request.want), tolerance) << model;
      }
    }
  }
}

TEST(Ranking, EveryTableOfKernelsGivesTheSameBits) {
  for (const char* model : {"dlrm", "half", "byte"}) {
    const auto scalar = Load(model, {{.isa = "scalar"}, {}});
    const auto best = Load(model, {{}, {.cpus = {0, 1}}});
    for (const Request& request : Requests(model)) {
      const auto a = scalar->Run(request.inputs);
      const auto b = best->Run(request.inputs);
      ASSERT_TRUE(a.ok() && b.ok());
      EXPECT_EQ(std::memcmp((*a)[0].bytes(), (*b)[0].bytes(),
                            static_cast<size_t>((*a)[0].num_bytes())),
                0)
          << model;
    }
  }
}

TEST(Ranking, FeaturesAreFoundAndRequestsCanBeJoined) {
  for (const char* model : {"dlrm", "end", "half", "byte"}) {
    const auto context = Load(model);
    const BatchAxis& axis = context->batch_axis();
    EXPECT_TRUE(axis.batchable) << model << ": " << axis.reason;
    ASSERT_EQ(axis.jagged.size(), 3u) << model;
    const JaggedFeature& ads = axis.jagged[0];
    EXPECT_EQ(context->inputs()[ads.values].name, "ads");
    EXPECT_EQ(context->inputs()[ads.offsets].name, "ads_offsets");
    ASSERT_EQ(ads.weights.size(), 1u);
    EXPECT_EQ(context->inputs()[ads.weights[0]].name, "ads_weights");
    EXPECT_EQ(ads.num_rows, 20);
    EXPECT_EQ(ads.has_end, std::string(model) == "end");
  }
  const auto fixed = Load("fixed");
  EXPECT_TRUE(fixed->batch_axis().batchable) << fixed->batch_axis().reason;
  EXPECT_TRUE(fixed->batch_axis().jagged.empty());
}

TEST(Ranking, OnePlanServesAnyNumberOfValues) {
  const auto context = Load("dlrm");
  std::vector<Request> requests = Requests("dlrm");
  const auto wide = context->Run(requests[0].inputs);
  ASSERT_TRUE(wide.ok());
  const int64_t plans = context->compiled_graph()->num_plans();
  // As many rows without any value.
  std::vector<Tensor>& inputs = requests[0].inputs;
  for (const size_t i : {1, 3, 5}) {
    inputs[i] = Tensor::Make(DType::kI64, {0});
    inputs[i + 1] = Tensor::Make(DType::kI64, {3});
  }
  inputs[7] = Tensor::Make(DType::kF32, {0});
  const auto none = context->Run(inputs);
  ASSERT_TRUE(none.ok()) << none.status().ToString();
  EXPECT_EQ(context->compiled_graph()->num_plans(), plans);
  InstanceOptions plain;
  plain.interpret = true;
  const auto want = Load("dlrm", plain)->Run(inputs);
  ASSERT_TRUE(want.ok());
  EXPECT_LE(Difference((*none)[0], (*want)[0]), 1e-6);
}

TEST(Ranking, AnIndexOutsideOfItsTableIsNamed) {
  const auto context = Load("dlrm");
  std::vector<Tensor> inputs = std::move(Requests("dlrm")[0].inputs);
  inputs[1] = inputs[1].Copy();
  inputs[1].data<int64_t>()[2] = 20;
  const auto got = context->Run(inputs);
  EXPECT_EQ(got.status().code(), StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(got.status().message()),
              ::testing::HasSubstr("'ads' has the index 20 at place 2, but the "
                                   "table '"));
}

TEST(Ranking, MadeUpInputsFit) {
  for (const char* model : {"dlrm", "end", "byte"}) {
    const auto context = Load(model);
    for (const auto left_out : {LeftOutSizes::kLeast, LeftOutSizes::kLikely}) {
      const auto inputs =
          SampleInputs(context->compiled_graph()->graph(), {}, left_out);
      ASSERT_TRUE(inputs.ok()) << inputs.status().ToString();
      const auto got = context->Run(*inputs);
      EXPECT_TRUE(got.ok()) << model << ": " << got.status().ToString();
    }
  }
}

// A file may give both a size of its own, and both may fit one plan.
TEST(Ranking, AsManyWeightsAsValues) {
  Graph graph;
  const auto table = graph.AddConstant("t", F({2, 1}, {1, 2}));
  const auto input = [&](const char* name, DType dtype) {
    return graph.AddInput(name, dtype, {{.symbol = graph.AddSymbol(name)}});
  };
  const auto v = input("v", DType::kI64);
  const auto o = input("o", DType::kI64);
  const auto w = input("w", DType::kF32);
  graph.AddOutput(
      "y", graph.AddNode("bag", *FindOp("EmbeddingBag"), {table, v, o, w}));
  auto context = CreateInstance(std::move(graph), {});
  ASSERT_TRUE(context.ok()) << context.status().ToString();
  std::vector<Tensor> inputs;
  inputs.push_back(I64({3}, {0, 1, 1}));
  inputs.push_back(I64({2}, {0, 1}));
  inputs.push_back(F({2}, {1, 1}));
  const auto got = (*context)->Run(inputs);
  EXPECT_EQ(got.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(got.status().message()),
              ::testing::HasSubstr("'v' has 3 values, but 2 weights"));
  inputs[2] = F({3}, {1, 1, 0.5f});
  const auto fits = (*context)->Run(inputs);
  ASSERT_TRUE(fits.ok()) << fits.status().ToString();
  EXPECT_THAT(Floats((*fits)[0]), ::testing::ElementsAre(1, 3));
}

// As tables of FP64 take them, beside one of FP32.
TEST(Ranking, WeightsMayBeCast) {
  for (const bool also_as_they_come : {false, true}) {
    Graph graph;
    const auto table = graph.AddConstant("t", F({2, 1}, {1, 2}));
    const auto input = [&](const char* name, DType dtype) {
      return graph.AddInput(name, dtype, {{.symbol = graph.AddSymbol(name)}});
    };
    const auto v = input("v", DType::kI64);
    const auto o = input("o", DType::kI64);
    const auto w = input("w", also_as_they_come ? DType::kF32 : DType::kF64);
    const auto cast = graph.AddNode("cast", *FindOp("Cast"), {w},
                                    {{"to", int64_t{1}}});  // ONNX's FLOAT
    graph.AddOutput("y", graph.AddNode("bag", *FindOp("EmbeddingBag"),
                                       {table, v, o, cast}));
    if (also_as_they_come) {
      graph.AddOutput("z", graph.AddNode("other", *FindOp("EmbeddingBag"),
                                         {table, v, o, w}));
    }
    const auto features = FindJagged(graph);
    ASSERT_EQ(features.size(), 1u);
    EXPECT_THAT(features[0].weights, ::testing::ElementsAre(2));
    // A plan's Cast is of one size.
    EXPECT_THAT(HoldsJaggedValues(graph),
                ::testing::Each(::testing::Eq(false)));
    graph.AddOutput("x", graph.AddNode("more", *FindOp("Add"), {w, w}));
    EXPECT_TRUE(FindJagged(graph).empty());
  }
}

// Nothing but offsets with an end tells the rows.
TEST(Ranking, AnEndIsNoRow) {
  const auto context = Load("modes_end");
  const BatchAxis& axis = context->batch_axis();
  EXPECT_TRUE(axis.batchable) << axis.reason;
  EXPECT_TRUE(CountsAnEnd(axis, context->inputs()));
  EXPECT_FALSE(CountsAnEnd(Load("end")->batch_axis(), Load("end")->inputs()));
}

TEST(Ranking, InputsThatOthersReadAreNoFeatures) {
  Graph graph;
  const int32_t n = graph.AddSymbol("n");
  const int32_t rows = graph.AddSymbol("rows");
  const auto table = graph.AddConstant("t", F({2, 1}, {1, 2}));
  const auto values = graph.AddInput("v", DType::kI64, {{.symbol = n}});
  const auto offsets = graph.AddInput("o", DType::kI64, {{.symbol = rows}});
  graph.AddOutput("y", graph.AddNode("bag", *FindOp("EmbeddingBag"),
                                     {table, values, offsets}));
  EXPECT_EQ(FindJagged(graph).size(), 1u);
  graph.AddOutput("z", graph.AddNode("more", *FindOp("Add"), {values, values}));
  EXPECT_TRUE(FindJagged(graph).empty());
}

}  // namespace
}  // namespace millrace::models::graph
