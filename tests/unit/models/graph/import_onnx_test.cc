#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/graph/interpreter.h"
#include "tests/unit/models/graph/onnx_model.h"

namespace millrace::models::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Message(const Status& status) {
  return std::string(status.message());
}

std::vector<float> Answer(const Graph& graph, std::vector<float> x) {
  std::vector<Tensor> inputs;
  inputs.push_back(Tensor::From<float>(
      DType::kF32, {static_cast<int64_t>(x.size())}, std::span(x)));
  const auto outputs = Interpret(graph, inputs);
  EXPECT_TRUE(outputs.ok()) << outputs.status().message();
  if (!outputs.ok()) return {};
  const Tensor& y = (*outputs)[0];
  return {y.data<float>(), y.data<float>() + y.num_elements()};
}

TEST(ImportOnnx, RunsNodesThatStandInAnyOrder) {
  OnnxModel model;
  model.Input("x", {2});
  model.Output("y");
  model.Floats("w", {2}, {10, 20});
  model.Node("Neg", {"s"}, {"y"});
  model.Node("Add", {"x", "w"}, {"s"});
  const auto graph = model.Import();
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_THAT(Answer(*graph, {1, 2}), ElementsAre(-11, -22));
}

TEST(ImportOnnx, NamesEveryNodeThatIsNotSupported) {
  OnnxModel model;
  model.Input("x", {2});
  model.Output("y");
  model.Node("Quux", {"x"}, {"a"});
  model.Node("Neg", {"a"}, {"b"});
  model.Node("Frob", {"b", "x"}, {"y"})->set_domain("com.example");
  ImportReport report;
  const auto graph = model.Import(&report);
  EXPECT_EQ(graph.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(Message(graph.status()), HasSubstr("operator Quux"));
  ASSERT_EQ(report.unsupported.size(), 2u);
  EXPECT_EQ(report.unsupported[1].op, "com.example::Frob");
  EXPECT_EQ(report.unsupported[1].inputs, "b, x");
  EXPECT_EQ(report.format, "ONNX, opset 20");
}

TEST(ImportOnnx, IdentityAndDropoutVanish) {
  OnnxModel model;
  model.Input("x", {1});
  model.Output("y");
  model.Node("Identity", {"x"}, {"a"});
  model.Node("Dropout", {"a"}, {"b"});
  model.Node("Neg", {"b"}, {"y"});
  const auto graph = model.Import();
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_EQ(graph->nodes.size(), 1u);
}

TEST(ImportOnnx, AxesOfATransposeAreCountedFromTheBeginning) {
  OnnxModel m;
  m.Input("x", {2, 3});
  OnnxModel::Ints(m.Node("Transpose", {"x"}, {"y"}), "perm", {-1, 0});
  m.Output("y");
  const auto graph = m.Import();
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  EXPECT_THAT(graph->nodes[0].attrs.Ints("perm"), ElementsAre(1, 0));
  OnnxModel beyond;
  beyond.Input("x", {2, 3});
  OnnxModel::Ints(beyond.Node("Transpose", {"x"}, {"y"}), "perm", {-3, 0});
  beyond.Output("y");
  const auto bad = beyond.Import();
  ASSERT_TRUE(bad.ok()) << bad.status().ToString();
  std::vector<Tensor> inputs;
  inputs.push_back(Tensor::Make(DType::kF32, {2, 3}));
  EXPECT_FALSE(Interpret(*bad, inputs).ok());
}

// The region from (0, 0) to (2, 2), one sample in its middle: the pixel at
// (1, 1), or where regions are shifted by half a pixel the mean of four.
TEST(ImportOnnx, RegionsWereNotShiftedBefore16) {
  for (const int64_t opset : {10, 15, 16}) {
    OnnxModel m(opset);
    m.Input("x", {1, 1, 4, 4});
    m.Floats("rois", {1, 4}, {0, 0, 2, 2});
    onnx::TensorProto* images = m.graph()->add_initializer();
    images->set_name("images");
    images->set_data_type(onnx::TensorProto::INT64);
    images->add_dims(1);
    images->add_int64_data(0);
    m.Node("RoiAlign", {"x", "rois", "images"}, {"y"});
    m.Output("y");
    onnx::AttributeProto* ratio = m.graph()->mutable_node(0)->add_attribute();
    ratio->set_name("sampling_ratio");
    ratio->set_type(onnx::AttributeProto::INT);
    ratio->set_i(1);
    const auto graph = m.Import();
    ASSERT_TRUE(graph.ok()) << graph.status().ToString();
    std::vector<Tensor> inputs;
    inputs.push_back(Tensor::Make(DType::kF32, {1, 1, 4, 4}));
    for (int i = 0; i < 16; ++i) {
      inputs[0].data<float>()[i] = static_cast<float>(i);
    }
    const auto y = Interpret(*graph, inputs);
    ASSERT_TRUE(y.ok()) << y.status().ToString();
    EXPECT_EQ(*(*y)[0].data<float>(), opset < 16 ? 5 : 2.5f) << opset;
  }
}

TEST(ImportOnnx, ACycleIsRefused) {
  OnnxModel model;
  model.Input("x", {1});
  model.Output("y");
  model.Node("Add", {"x", "y"}, {"a"});
  model.Node("Neg", {"a"}, {"y"});
  EXPECT_THAT(Message(model.Import().status()), HasSubstr("a cycle"));
}

TEST(ImportOnnx, AMissingOperandIsNamed) {
  OnnxModel model;
  model.Output("y");
  model.Node("Neg", {"nobody"}, {"y"});
  EXPECT_THAT(Message(model.Import().status()),
              HasSubstr("nothing makes its operand 'nobody'"));
}

TEST(ImportOnnx, ANodeWithoutItsFirstOperandIsRefused) {
  for (const char* op : {"Transpose", "Shape", "Relu", "Gemm"}) {
    for (const bool named : {true, false}) {
      OnnxModel m;
      m.Input("x", {2, 3});
      auto* node = m.Node(op, {}, {"y"});
      if (named) node->add_input("");
      m.Output("y");
      EXPECT_THAT(Message(m.Import().status()),
                  HasSubstr("lacks its first operand"))
          << op;
    }
  }
}

TEST(ImportOnnx, OneNameForTwoValuesIsRefused) {
  OnnxModel model;
  model.Input("x", {1});
  model.Output("y");
  model.Node("Neg", {"x"}, {"y"});
  model.Node("Abs", {"x"}, {"y"});
  EXPECT_THAT(Message(model.Import().status()),
              HasSubstr("the name 'y' is given to two values"));
}

TEST(ImportOnnx, AWeightOfTheWrongSizeIsRefused) {
  OnnxModel model;
  model.Input("x", {1});
  model.Output("y");
  model.Floats("w", {3}, {1, 2});
  model.Node("Add", {"x", "w"}, {"y"});
  EXPECT_THAT(Message(model.Import().status()),
              HasSubstr("tensor 'w' holds 2 numbers, but is FP32 [3]"));
}

TEST(ImportOnnx, ExternalDataOutsideOfTheFolderAreRefused) {
  for (const char* place : {"../secret", "/etc/passwd", "a/../../b"}) {
    OnnxModel model;
    model.Input("x", {1});
    model.Output("y");
    onnx::TensorProto* weight = model.Floats("w", {1}, {});
    weight->set_data_location(onnx::TensorProto::EXTERNAL);
    auto* entry = weight->add_external_data();
    entry->set_key("location");
    entry->set_value(place);
    model.Node("Add", {"x", "w"}, {"y"});
    EXPECT_THAT(Message(model.Import(nullptr, "/tmp").status()),
                HasSubstr("outside of the model's folder"));
  }
}

TEST(ImportOnnx, BranchesSeeWhatStandsAroundThem) {
  OnnxModel model;
  model.Input("c", {}, onnx::TensorProto::BOOL);
  model.Input("x", {2});
  model.Output("y");
  model.Node("Neg", {"x"}, {"outer"});
  onnx::NodeProto* node = model.Node("If", {"c"}, {"y"});
  for (const char* branch : {"then_branch", "else_branch"}) {
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name(branch);
    attribute->set_type(onnx::AttributeProto::GRAPH);
    const bool then = std::string(branch) == "then_branch";
    OnnxModel::NodeIn(attribute->mutable_g(), then ? "Abs" : "Neg", {"outer"},
                      {"out"});
    onnx::ValueInfoProto* out = attribute->mutable_g()->add_output();
    out->set_name("out");
    if (then) out->mutable_type();  // an empty one says as little as none
  }
  const auto graph = model.Import();
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  for (const bool then : {true, false}) {
    std::vector<Tensor> inputs;
    inputs.push_back(Tensor::Make(DType::kBool, {}));
    *inputs[0].data<bool>() = then;
    inputs.push_back(Tensor::Make(DType::kF32, {1}));
    *inputs[1].data<float>() = -7;
    const auto outputs = Interpret(*graph, inputs);
    ASSERT_TRUE(outputs.ok()) << outputs.status().message();
    EXPECT_EQ(*(*outputs)[0].data<float>(), then ? 7 : -7);
  }
}

// Loop(trips, condition, carried…) whose body adds x to the one value it has.
OnnxModel Sums(const std::vector<std::string>& operands) {
  OnnxModel model;
  model.Input("x", {2});
  model.Output("y");
  onnx::TensorProto* trips = model.graph()->add_initializer();
  trips->set_name("trips");
  trips->set_data_type(onnx::TensorProto::INT64);
  trips->add_int64_data(3);
  onnx::NodeProto* node = model.Node("Loop", operands, {"y"});
  onnx::AttributeProto* attribute = node->add_attribute();
  attribute->set_name("body");
  attribute->set_type(onnx::AttributeProto::GRAPH);
  onnx::GraphProto* body = attribute->mutable_g();
  for (const char* name : {"trip", "go", "sum"}) {
    body->add_input()->set_name(name);
  }
  OnnxModel::NodeIn(body, "Add", {"sum", "x"}, {"more"});
  for (const char* name : {"go", "more"}) body->add_output()->set_name(name);
  return model;
}

TEST(ImportOnnx, ALoopWhoseBodyDoesNotFitItIsRefused) {
  const auto graph = Sums({"trips", "", "x"}).Import();
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_THAT(Answer(*graph, {1, 2}), ElementsAre(4, 8));
  for (const std::vector<std::string>& operands :
       {std::vector<std::string>{"trips", ""},
        std::vector<std::string>{"trips", "", "x", "x"}}) {
    EXPECT_THAT(Message(Sums(operands).Import().status()),
                HasSubstr("do not fit"));
  }
  EXPECT_THAT(Message(Sums({"trips", "", ""}).Import().status()),
              HasSubstr("is left out"));
}

TEST(ImportOnnx, FunctionsOfTheModelAreInlined) {
  OnnxModel model;
  model.Input("x", {2});
  model.Output("y");
  model.Node("Twice", {"x"}, {"y"})->set_domain("local");
  onnx::FunctionProto* function = model.proto().add_functions();
  function->set_name("Twice");
  function->set_domain("local");
  function->add_input("a");
  function->add_output("b");
  function->add_opset_import()->set_version(20);
  onnx::NodeProto* node = function->add_node();
  node->set_op_type("Add");
  node->add_input("a");
  node->add_input("a");
  node->add_output("b");
  const auto graph = model.Import();
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_THAT(Answer(*graph, {3, 4}), ElementsAre(6, 8));
}

TEST(ImportOnnx, AFunctionThatCallsItselfIsRefused) {
  OnnxModel model;
  model.Input("x", {2});
  model.Output("y");
  model.Node("F", {"x"}, {"y"})->set_domain("local");
  onnx::FunctionProto* function = model.proto().add_functions();
  function->set_name("F");
  function->set_domain("local");
  function->add_input("a");
  function->add_output("b");
  *function->add_node() = model.graph()->node(0);
  function->mutable_node(0)->set_input(0, "a");
  function->mutable_node(0)->set_output(0, "b");
  EXPECT_EQ(model.Import().status().code(), StatusCode::kResourceExhausted);
}

TEST(ImportOnnx, BytesThatAreNoModelAreRefused) {
  const std::string bytes = "not a model";
  const auto graph =
      ImportOnnxBytes(std::as_bytes(std::span(bytes)), "", nullptr, {});
  EXPECT_EQ(graph.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace::models::graph
