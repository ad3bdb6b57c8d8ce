// Quantised operators of ONNX Runtime's own domain.
#include <cmath>

#include "tests/unit/models/graph/microsoft_model.h"

namespace millrace::models::graph {
namespace {

using ::testing::ElementsAre;

class MicrosoftBytes : public MicrosoftModel {};

TEST_F(MicrosoftBytes, QLinearAddIsOnThreeScales) {
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

TEST_F(MicrosoftBytes, BytesWithoutZeroPointsKeepTheirType) {
  model_.Input("x", {2}, onnx::TensorProto::INT8);
  model_.Floats("s", {}, {1});
  Node("QLinearAdd", {"x", "s", "", "x", "s", "", "s"});
  std::vector<Tensor> inputs;
  inputs.push_back(I8({2}, {-4, 40}));
  const auto y = Run(std::move(inputs));
  ASSERT_EQ(y.size(), 1u);
  ASSERT_EQ(y[0].dtype(), DType::kI8);
  EXPECT_THAT(Values<int8_t>(y[0]), ElementsAre(-8, 80));
}

// Each of four numbers is a quarter, on a scale of 1/64.
TEST_F(MicrosoftBytes, OldSoftmaxesOfBytesSeeAMatrix) {
  model_.Input("x", {1, 2, 2}, onnx::TensorProto::UINT8);
  model_.Floats("s", {}, {1});
  model_.Floats("t", {}, {1 / 64.f});
  onnx::NodeProto* node = Node("QLinearSoftmax", {"x", "s", "", "t", ""});
  Int(node, "opset", 11);
  Int(node, "axis", 1);
  std::vector<Tensor> inputs;
  inputs.push_back(U8({1, 2, 2}, {5, 5, 5, 5}));
  const auto y = Run(std::move(inputs));
  ASSERT_EQ(y.size(), 1u);
  EXPECT_THAT(Values<uint8_t>(y[0]), ElementsAre(16, 16, 16, 16));
}

TEST_F(MicrosoftBytes, QLinearConcatTakesPartsWhole) {
  model_.Input("x", {1}, onnx::TensorProto::UINT8);
  model_.Floats("s", {}, {1});
  Int(Node("QLinearConcat", {"s", "", "x", "s", "", "x"}), "axis", 0);
  const auto graph = model_.Import();
  ASSERT_TRUE(graph.ok());
  std::vector<Tensor> inputs;
  inputs.push_back(U8({1}, {1}));
  EXPECT_FALSE(Interpret(*graph, inputs).ok());
}

TEST_F(MicrosoftBytes, AlphaOfQGemmBelongsToItsBiasToo) {
  model_.Input("x", {1, 1}, onnx::TensorProto::UINT8);
  model_.Floats("s", {}, {0.5});
  onnx::TensorProto* w = model_.Floats("w", {1, 1}, {});
  w->set_data_type(onnx::TensorProto::INT8);
  w->add_int32_data(3);
  onnx::TensorProto* c = model_.Floats("c", {1}, {});
  c->set_data_type(onnx::TensorProto::INT32);
  c->add_int32_data(10);
  Float(Node("QGemm", {"x", "s", "", "w", "s", "", "c"}), "alpha", 4);
  EXPECT_THAT(One(U8({1, 1}, {2})), ElementsAre(16));  // (2*3 + 10) / 4 * 4
}

TEST_F(MicrosoftBytes, QGemmHasABiasOnTheScaleOfTheProduct) {
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
TEST_F(MicrosoftBytes, DynamicQuantizeLstmHasWeightsOfBytes) {
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
