// Operators of ONNX Runtime's own domain, each with numbers small enough to
// see; tests/bench/graph/ort_ops.py holds them against ONNX Runtime.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/graph/interpreter.h"
#include "tests/unit/models/graph/onnx_model.h"
#include "tests/unit/models/graph/run_op.h"

namespace millrace::models::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

class Microsoft : public testing::Test {
 protected:
  onnx::NodeProto* Node(const std::string& op,
                        const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs = {"y"}) {
    for (const std::string& name : outputs) {
      if (!name.empty()) model_.Output(name);
    }
    onnx::NodeProto* node = model_.Node(op, inputs, outputs);
    node->set_domain("com.microsoft");
    return node;
  }
  static void Int(onnx::NodeProto* node, const char* name, int64_t value) {
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name(name);
    attribute->set_type(onnx::AttributeProto::INT);
    attribute->set_i(value);
  }
  static void Float(onnx::NodeProto* node, const char* name, float value) {
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name(name);
    attribute->set_type(onnx::AttributeProto::FLOAT);
    attribute->set_f(value);
  }
  static void Text(onnx::NodeProto* node, const char* name, const char* value) {
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name(name);
    attribute->set_type(onnx::AttributeProto::STRING);
    attribute->set_s(value);
  }

  std::vector<Tensor> Run(std::vector<Tensor> inputs) {
    const auto graph = model_.Import();
    EXPECT_TRUE(graph.ok()) << graph.status().ToString();
    if (!graph.ok()) return {};
    auto outputs = Interpret(*graph, inputs);
    EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
    return outputs.ok() ? *std::move(outputs) : std::vector<Tensor>();
  }
  std::vector<float> One(Tensor x) {
    std::vector<Tensor> inputs;
    inputs.push_back(std::move(x));
    const auto outputs = Run(std::move(inputs));
    return outputs.empty() ? std::vector<float>() : Floats(outputs[0]);
  }

  OnnxModel model_;
};

auto Near(const std::vector<float>& values) {
  return Pointwise(FloatNear(1e-5f), values);
}

TEST_F(Microsoft, OperatorsOfOtherDomainsAreNamed) {
  model_.Input("x", {1});
  Node("Conv", {"x", "x"})->set_domain("com.microsoft.nchwc");
  Node("Quux", {"x"}, {"z"});
  ImportReport report;
  EXPECT_FALSE(model_.Import(&report).ok());
  ASSERT_EQ(report.unsupported.size(), 2u);
  EXPECT_EQ(report.unsupported[0].op, "com.microsoft.nchwc::Conv");
  EXPECT_THAT(report.unsupported[0].why, HasSubstr("ORT_ENABLE_EXTENDED"));
  EXPECT_EQ(report.unsupported[1].op, "com.microsoft::Quux");
}

TEST_F(Microsoft, NodesWithoutOperandsAreRefused) {
  for (const char* op :
       {"Attention", "BiasGelu", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul",
        "EmbedLayerNormalization", "FastGelu", "FusedConv", "FusedGemm",
        "FusedMatMul", "MatMulIntegerToFloat", "MultiHeadAttention", "QGemm",
        "QLinearAdd", "QLinearConcat", "QLinearSoftmax", "RotaryEmbedding",
        "SkipLayerNormalization"}) {
    OnnxModel model;
    model.Output("y");
    model.Node(op, {}, {"y"})->set_domain("com.microsoft");
    EXPECT_FALSE(model.Import().ok()) << op;
  }
}

TEST_F(Microsoft, BiasGeluAddsBeforeTheFunction) {
  model_.Input("x", {2});
  model_.Floats("b", {2}, {1, 2});
  Node("BiasGelu", {"x", "b"});
  EXPECT_THAT(One(F({2}, {0, -1})), Near({0.8413447f, 0.8413447f}));
}

TEST_F(Microsoft, QuickGeluIsASwish) {
  model_.Input("x", {1});
  Float(Node("QuickGelu", {"x"}), "alpha", 2);
  EXPECT_THAT(One(F({1}, {1})), Near({1 / (1 + std::exp(-2.f))}));
}

TEST_F(Microsoft, FusedMatMulTurnsItsOperandsAndScales) {
  model_.Input("x", {2, 1});
  model_.Floats("w", {3, 2}, {1, 2, 3, 4, 5, 6});
  onnx::NodeProto* node = Node("FusedMatMul", {"x", "w"});
  Int(node, "transA", 1);
  Int(node, "transB", 1);
  Float(node, "alpha", 0.5);
  EXPECT_THAT(One(F({2, 1}, {10, 1})), ElementsAre(6, 17, 28));
}

TEST_F(Microsoft, FusedMatMulTakesRowsOfTheFirstAxis) {
  model_.Input("x", {2, 1, 2});  // rows, matrices, columns
  model_.Floats("w", {2, 1}, {1, 10});
  Int(Node("FusedMatMul", {"x", "w"}), "transBatchA", 1);
  EXPECT_THAT(One(F({2, 1, 2}, {1, 2, 3, 4})), ElementsAre(21, 43));
}

TEST_F(Microsoft, FusedConvAddsThenActivates) {
  model_.Input("x", {1, 1, 1, 2});
  model_.Floats("w", {1, 1, 1, 1}, {2});
  model_.Floats("z", {1, 1, 1, 2}, {-5, 1});
  onnx::NodeProto* node = Node("FusedConv", {"x", "w", "", "z"});
  Text(node, "activation", "LeakyRelu");
  onnx::AttributeProto* numbers = node->add_attribute();
  numbers->set_name("activation_params");
  numbers->set_type(onnx::AttributeProto::FLOATS);
  numbers->add_floats(0.5);
  EXPECT_THAT(One(F({1, 1, 1, 2}, {1, 1})), ElementsAre(-1.5, 3));
}

TEST_F(Microsoft, SkipLayerNormalizationShowsItsSum) {
  model_.Input("x", {1, 2});
  model_.Floats("s", {1, 2}, {1, 5});
  model_.Floats("g", {2}, {1, 2});
  model_.Floats("b", {2}, {0, 1});
  Node("SkipLayerNormalization", {"x", "s", "g", "b"}, {"y", "", "", "sum"});
  std::vector<Tensor> inputs;
  inputs.push_back(F({1, 2}, {1, 1}));
  const auto y = Run(std::move(inputs));
  ASSERT_EQ(y.size(), 2u);
  EXPECT_THAT(Floats(y[0]), Near({-1, 3}));
  EXPECT_THAT(Floats(y[1]), ElementsAre(2, 6));
}

TEST_F(Microsoft, EmbedLayerNormalizationCountsTheWordsThatAreShown) {
  model_.Input("ids", {1, 2}, onnx::TensorProto::INT32);
  model_.Input("mask", {1, 2}, onnx::TensorProto::INT32);
  model_.Floats("words", {3, 2}, {0, 0, 1, 2, 3, 4});
  model_.Floats("places", {2, 2}, {0, 1, 5, 0});
  model_.Floats("g", {2}, {1, 1});
  model_.Floats("b", {2}, {0, 0});
  Node("EmbedLayerNormalization",
       {"ids", "", "words", "places", "", "g", "b", "mask"},
       {"y", "shown", "sum"});
  std::vector<Tensor> inputs;
  inputs.push_back(I32({1, 2}, {1, 2}));
  inputs.push_back(I32({1, 2}, {1, 0}));
  const auto y = Run(std::move(inputs));
  ASSERT_EQ(y.size(), 3u);
  EXPECT_THAT(Floats(y[0]), Near({-1, 1, 1, -1}));
  EXPECT_THAT(Values<int32_t>(y[1]), ElementsAre(1));
  EXPECT_THAT(Floats(y[2]), ElementsAre(1, 3, 8, 4));
}

// One head of one number; weights of zero make all keys alike.
TEST_F(Microsoft, AttentionHidesKeysOfItsMask) {
  model_.Input("x", {1, 3, 1});
  model_.Input("mask", {1, 3}, onnx::TensorProto::INT32);
  model_.Floats("w", {1, 3}, {0, 0, 2});
  model_.Floats("b", {3}, {0, 0, 1});
  Int(Node("Attention", {"x", "w", "b", "mask"}), "num_heads", 1);
  for (const auto& [mask, value] :
       {std::pair(std::vector<int32_t>{1, 1, 0}, 4.f),
        std::pair(std::vector<int32_t>{0, 0, 0}, 9.f)}) {
    std::vector<Tensor> inputs;
    inputs.push_back(F({1, 3, 1}, {1, 2, 9}));
    inputs.push_back(I32({1, 3}, mask));
    const auto y = Run(std::move(inputs));
    ASSERT_EQ(y.size(), 1u);
    EXPECT_THAT(Floats(y[0]), Near({value, value, value}));
  }
}

TEST_F(Microsoft, AttentionHandsOnItsKeysAndValues) {
  model_.Input("x", {1, 1, 1});
  model_.Floats("w", {1, 3}, {0, 1, 2});
  model_.Floats("b", {3}, {0, 0, 0});
  model_.Floats("past", {2, 1, 1, 1, 1}, {7, 8});
  onnx::NodeProto* node =
      Node("Attention", {"x", "w", "b", "", "past"}, {"y", "present"});
  Int(node, "num_heads", 1);
  Int(node, "unidirectional", 1);
  std::vector<Tensor> inputs;
  inputs.push_back(F({1, 1, 1}, {3}));
  const auto y = Run(std::move(inputs));
  ASSERT_EQ(y.size(), 2u);
  EXPECT_THAT(Floats(y[0]), Near({7}));
  EXPECT_EQ(y[1].shape(), (Shape{2, 1, 1, 2, 1}));
  EXPECT_THAT(Floats(y[1]), ElementsAre(7, 3, 8, 6));
}

TEST_F(Microsoft, MultiHeadAttentionHasBiasesSideBySide) {
  model_.Input("v", {1, 2, 1});
  model_.Floats("q", {1, 1, 1}, {0});
  model_.Floats("k", {1, 2, 1}, {1, 1});
  model_.Floats("b", {3}, {0, 0, 10});
  Int(Node("MultiHeadAttention", {"q", "k", "v", "b"}), "num_heads", 1);
  EXPECT_THAT(One(F({1, 2, 1}, {1, 3})), Near({12}));
}

TEST_F(Microsoft, QLinearAddIsOnThreeScales) {
  model_.Input("x", {2}, onnx::TensorProto::UINT8);
  for (const auto& [name, scale] :
       {std::pair("s", 1.f), std::pair("t", 0.5f), std::pair("u", 2.f)}) {
    model_.Floats(name, {}, {scale});
  }
  Node("QLinearAdd", {"x", "s", "", "x", "t", "", "u", ""});
  std::vector<Tensor> inputs;
  inputs.push_back(U8({2}, {4, 40}));
  const auto y = Run(std::move(inputs));
  ASSERT_EQ(y.size(), 1u);
  EXPECT_THAT(Values<uint8_t>(y[0]), ElementsAre(3, 30));
}

TEST_F(Microsoft, QGemmHasABiasOnTheScaleOfTheProduct) {
  model_.Input("x", {1, 2}, onnx::TensorProto::UINT8);
  model_.Floats("s", {}, {0.5});
  model_.Floats("t", {2}, {1, 2});
  onnx::TensorProto* w = model_.Floats("w", {2, 2}, {});
  w->set_data_type(onnx::TensorProto::INT8);
  for (const int v : {1, -1, 2, 3}) w->add_int32_data(v);
  onnx::TensorProto* c = model_.Floats("c", {2}, {});
  c->set_data_type(onnx::TensorProto::INT32);
  for (const int v : {10, 20}) c->add_int32_data(v);
  Node("QGemm", {"x", "s", "", "w", "t", "", "c"});
  // (1*2 + 2*4 + 10) / 2, (-1*2 + 3*4 + 20) * 1
  EXPECT_THAT(One(U8({1, 2}, {2, 4})), ElementsAre(10, 30));
}

// All four gates see 0.5 * (3 - 1) * x = x; i, o, f and the cell's candidate.
TEST_F(Microsoft, DynamicQuantizeLstmHasWeightsOfBytes) {
  model_.Input("x", {1, 1, 1});
  for (const char* name : {"w", "r"}) {
    onnx::TensorProto* weight = model_.Floats(name, {1, 1, 4}, {});
    weight->set_data_type(onnx::TensorProto::UINT8);
    for (int i = 0; i < 4; ++i) weight->add_int32_data(3);
    model_.Floats(std::string(name) + "s", {1}, {0.5});
    onnx::TensorProto* zero = model_.Floats(std::string(name) + "z", {1}, {});
    zero->set_data_type(onnx::TensorProto::UINT8);
    zero->add_int32_data(1);
  }
  Int(Node("DynamicQuantizeLSTM",
           {"x", "w", "r", "", "", "", "", "", "ws", "wz", "rs", "rz"}),
      "hidden_size", 1);
  const float x = 2;
  const float gate = 1 / (1 + std::exp(-x));
  EXPECT_THAT(One(F({1, 1, 1}, {x})),
              Near({gate * std::tanh(gate * std::tanh(x))}));
}

}  // namespace
}  // namespace millrace::models::graph
