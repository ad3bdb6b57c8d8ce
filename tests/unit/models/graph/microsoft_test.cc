// Operators of ONNX Runtime's own domain.
#include <cmath>

#include "tests/unit/models/graph/microsoft_model.h"

namespace millrace::models::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Microsoft : public MicrosoftModel {};

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
        "FusedMatMul", "MatMulIntegerToFloat", "MultiHeadAttention",
        "QAttention", "MatMulNBits", "QGemm", "QLinearAdd", "QLinearConcat",
        "QLinearSoftmax", "RotaryEmbedding", "SkipLayerNormalization"}) {
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

TEST_F(Microsoft, FusedMatMulLeavesVectorsAsTheyAre) {
  model_.Input("x", {2});
  model_.Floats("w", {2, 1}, {1, 10});
  Int(Node("FusedMatMul", {"x", "w"}), "transA", 1);
  EXPECT_THAT(One(F({2}, {3, 4})), ElementsAre(43));
}

TEST_F(Microsoft, FusedGemmHasNumbersOfItsActivationByName) {
  model_.Input("x", {1, 3});
  model_.Floats("w", {3, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1});
  onnx::NodeProto* node = Node("FusedGemm", {"x", "w"});
  Text(node, "activation", "HardSigmoid");
  Float(node, "activation_beta", 0.25);
  EXPECT_THAT(One(F({1, 3}, {-9, 1, 9})), Near({0, 0.45f, 1}));
}

TEST_F(Microsoft, FusedGemmHasActivationsOfManyKinds) {
  model_.Input("x", {1, 2});
  model_.Floats("w", {2, 2}, {1, 0, 0, 1});
  onnx::NodeProto* node = Node("FusedGemm", {"x", "w"});
  Text(node, "activation", "ThresholdedRelu");
  Float(node, "activation_alpha", 2);
  EXPECT_THAT(One(F({1, 2}, {1, 3})), ElementsAre(0, 3));
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

// Bytes on a scale of 0.5, words from 2 on, places and biases from 0 on.
TEST_F(Microsoft, QEmbedLayerNormalizationHasTablesOfBytes) {
  model_.Input("ids", {1, 2}, onnx::TensorProto::INT32);
  const auto bytes = [&](const char* name, std::vector<int64_t> dims,
                         const std::vector<int>& values) {
    onnx::TensorProto* tensor = model_.Floats(name, std::move(dims), {});
    tensor->set_data_type(onnx::TensorProto::UINT8);
    for (const int value : values) tensor->add_int32_data(value);
  };
  bytes("words", {2, 2}, {2, 4, 6, 2});
  bytes("places", {2, 2}, {0, 0, 2, 4});
  bytes("g", {2}, {2, 4});
  bytes("b", {2}, {0, 2});
  bytes("two", {}, {2});
  bytes("zero", {}, {0});
  model_.Floats("s", {}, {0.5});
  // Sums are (0, 1) and (3, 2); (-1, 1) and (1, -1) before scale and bias.
  Node("QEmbedLayerNormalization",
       {"ids", "", "words", "places", "", "g", "b", "", "s", "s", "", "s", "s",
        "two", "zero", "", "zero", "zero"});
  EXPECT_THAT(One(I32({1, 2}, {0, 1})), Near({-1, 3, 1, -1}));
}

// Angles of 0 but at position 2, a quarter turn. Two heads of one pair.
TEST_F(Microsoft, RotaryEmbeddingFindsHeadsAndPositions) {
  model_.Input("x", {1, 2, 4});
  onnx::TensorProto* first = model_.Floats("first", {1}, {});
  first->set_data_type(onnx::TensorProto::INT64);
  first->add_int64_data(1);
  model_.Floats("cos", {3, 1}, {1, 1, 0});
  model_.Floats("sin", {3, 1}, {0, 0, 1});
  Node("RotaryEmbedding", {"x", "first", "cos", "sin"});
  EXPECT_THAT(One(F({1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})),
              ElementsAre(1, 2, 3, 4, -6, 5, -8, 7));
}

TEST_F(Microsoft, RotaryEmbeddingWithoutPositionsIsRefused) {
  model_.Input("x", {1, 1, 1, 2});
  model_.Floats("t", {1, 1, 1}, {1});
  Node("RotaryEmbedding", {"x", "", "t", "t"});
  EXPECT_FALSE(model_.Import().ok());
}

}  // namespace
}  // namespace millrace::models::graph
