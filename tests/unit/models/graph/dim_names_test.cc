// Names of dimensions bind where the arithmetic of the graph needs them, and
// nowhere else.
#include "models/graph/dim_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/graph/execution_context.h"
#include "models/graph/onnx/lifted.h"
#include "models/graph/sample_inputs.h"
#include "tests/unit/models/graph/onnx_model.h"

namespace millrace::models::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Dimensions by name, or by number where the text is one.
void Declare(OnnxModel& m, const std::string& name,
             const std::vector<std::string>& dims) {
  auto* info = m.graph()->add_input();
  info->set_name(name);
  auto* tensor = info->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(onnx::TensorProto::FLOAT);
  for (const std::string& dim : dims) {
    auto* one = tensor->mutable_shape()->add_dim();
    if (dim.find_first_not_of("-0123456789") == dim.npos) {
      one->set_dim_value(std::stoll(dim));
    } else {
      one->set_dim_param(dim);
    }
  }
}

std::vector<std::string> NamesOf(const Graph& graph, size_t input) {
  std::vector<std::string> names;
  for (const PortDim& dim : graph.inputs[input].dims) {
    names.push_back(dim.symbol >= 0
                        ? graph.symbols[static_cast<size_t>(dim.symbol)].name
                        : std::to_string(dim.size));
  }
  return names;
}

std::unique_ptr<ExecutionContext> ContextOf(const OnnxModel& m) {
  auto graph = m.Import();
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  NameOpenDims(*graph);
  auto context = CreateInstance(*std::move(graph), {});
  EXPECT_TRUE(context.ok()) << context.status().message();
  return std::move(context).value();
}

// As an image classifier that Paddle exports: a pool of 4 x 4 pixels, then the
// mean of all.
OnnxModel Classifier(const std::string& height, const std::string& width) {
  OnnxModel m;
  Declare(m, "x", {"-1", "3", height, width});
  auto* pool = m.Node("MaxPool", {"x"}, {"pooled"});
  OnnxModel::Ints(pool, "kernel_shape", {4, 4});
  OnnxModel::Ints(pool, "strides", {4, 4});
  m.Node("GlobalAveragePool", {"pooled"}, {"y"});
  m.Output("y");
  return m;
}

TEST(DimNames, AQuestionMarkIsNoName) {
  const auto context = ContextOf(Classifier("?", "?"));
  EXPECT_THAT(NamesOf(context->compiled_graph()->graph(), 0),
              ElementsAre("x.0", "3", "x.2", "x.3"));
  std::vector<Tensor> inputs;
  inputs.push_back(Tensor::Make(DType::kF32, {1, 3, 48, 192}));
  std::fill_n(inputs[0].data<float>(), inputs[0].num_elements(), 1.0f);
  const auto outputs = context->Run(inputs);
  ASSERT_TRUE(outputs.ok()) << outputs.status().message();
  EXPECT_EQ((*outputs)[0].shape(), Shape({1, 3, 1, 1}));
}

TEST(DimNames, OneNameOfTwoSizesIsTakenApart) {
  const auto context = ContextOf(Classifier("side", "side"));
  EXPECT_THAT(NamesOf(context->compiled_graph()->graph(), 0),
              ElementsAre("x.0", "3", "side", "x.3"));
}

TEST(DimNames, ANameStaysWhereTheArithmeticNeedsIt) {
  OnnxModel m;
  Declare(m, "a", {"batch", "length"});
  Declare(m, "b", {"batch", "length"});
  Declare(m, "c", {"batch", "length"});
  m.Node("Add", {"a", "b"}, {"sum"});
  m.Node("ReduceMax", {"c"}, {"most"});
  m.Node("Add", {"sum", "most"}, {"y"});
  m.Output("y");
  const auto context = ContextOf(m);
  const Graph& graph = context->compiled_graph()->graph();
  EXPECT_THAT(NamesOf(graph, 0), ElementsAre("batch", "length"));
  EXPECT_THAT(NamesOf(graph, 1), ElementsAre("batch", "length"));
  EXPECT_THAT(NamesOf(graph, 2), ElementsAre("batch", "c.1"));
  // And a request of two lengths is still refused in one sentence.
  std::vector<Tensor> inputs;
  for (const int64_t length : {4, 5, 4}) {
    inputs.push_back(Tensor::Make(DType::kF32, {1, length}));
  }
  EXPECT_THAT(std::string(context->Run(inputs).status().message()),
              HasSubstr("another input has length 4"));
}

// The first dimension is the batch: requests are joined by its name.
TEST(DimNames, RowsOfSeparateInputsStayOne) {
  OnnxModel m;
  Declare(m, "a", {"batch", "4"});
  Declare(m, "b", {"batch", "4"});
  m.Node("Relu", {"a"}, {"y"});
  m.Node("Relu", {"b"}, {"z"});
  m.Output("y");
  m.Output("z");
  const auto context = ContextOf(m);
  EXPECT_THAT(NamesOf(context->compiled_graph()->graph(), 1),
              ElementsAre("batch", "4"));
  EXPECT_TRUE(context->batch_axis().batchable) << context->batch_axis().reason;
}

TEST(DimNames, MadeUpInputsTakeSizesThatTheGraphAccepts) {
  const auto context = ContextOf(Classifier("?", "?"));
  const Graph& graph = context->compiled_graph()->graph();
  // A pool of 4 x 4 does not take the least size, 1.
  const auto least = SampleInputs(graph, {}, LeftOutSizes::kLeast);
  ASSERT_TRUE(least.ok()) << least.status().message();
  EXPECT_EQ((*least)[0].shape(), Shape({1, 3, 224, 224}));
  EXPECT_TRUE(context->Run(*least).ok());
  const auto given = SampleInputs(graph, {.sizes = {{"x.0", 2}, {"x.3", 8}}},
                                  LeftOutSizes::kLikely);
  ASSERT_TRUE(given.ok()) << given.status().message();
  EXPECT_EQ((*given)[0].shape(), Shape({2, 3, 224, 8}));
}

TEST(DimNames, SizesThatTheGraphRefusesAreSaid) {
  const auto context = ContextOf(Classifier("?", "?"));
  const Graph& graph = context->compiled_graph()->graph();
  const auto inputs =
      SampleInputs(graph, {.sizes = {{"x.2", 2}}}, LeftOutSizes::kLikely);
  EXPECT_THAT(std::string(inputs.status().message()),
              HasSubstr("node 'MaxPool_1' (MaxPool)"));
  EXPECT_THAT(std::string(inputs.status().message()),
              HasSubstr("the made-up inputs were 'x' FP32 [1, 3, 2, 224]"));
}

TEST(DimNames, AModelIsKnownByItsFieldsAlone) {
  const auto is_onnx = [](const std::string& text) {
    return HasOnnxGraph(std::as_bytes(std::span(text)));
  };
  OnnxModel m = Classifier("?", "?");
  const std::string model = m.proto().SerializeAsString();
  EXPECT_TRUE(is_onnx(model));
  m.proto().clear_ir_version();  // some writers put it elsewhere
  EXPECT_TRUE(is_onnx(m.proto().SerializeAsString()));
  EXPECT_FALSE(is_onnx(model.substr(0, model.size() - 1)));
  EXPECT_FALSE(is_onnx(""));
  EXPECT_FALSE(is_onnx("{\"model\": \"x\"}"));
  EXPECT_FALSE(is_onnx(std::string(64, '\0')));
  EXPECT_FALSE(is_onnx("\x08\x07"));
}

}  // namespace
}  // namespace millrace::models::graph
