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

// 17 rows of one column in blocks of 16; the first has a zero point of 2 and a
// scale of 1, the other of 1 and 10. Bytes hold 3 and 4, lowest bits first.
TEST_F(MicrosoftBytes, MatMulNBitsHasWeightsInBlocks) {
  model_.Input("x", {2, 17});
  onnx::TensorProto* w = model_.Floats("w", {1, 2, 8}, {});
  w->set_data_type(onnx::TensorProto::UINT8);
  for (int i = 0; i < 16; ++i) w->add_int32_data(0x43);
  model_.Floats("s", {1, 2}, {1, 10});
  onnx::TensorProto* zero = model_.Floats("z", {1, 1}, {});
  zero->set_data_type(onnx::TensorProto::UINT8);
  zero->add_int32_data(0x12);
  model_.Floats("c", {1}, {100});
  onnx::NodeProto* node = Node("MatMulNBits", {"x", "w", "s", "z", "", "c"});
  for (const auto& [name, value] :
       {std::pair("K", 17), std::pair("N", 1), std::pair("block_size", 16)}) {
    Int(node, name, value);
  }
  std::vector<float> x(34, 0);
  x[0] = x[1] = 1;  // 3 - 2 + 4 - 2
  x[33] = 1;        // (3 - 1) * 10
  EXPECT_THAT(One(F({2, 17}, x)), ElementsAre(103, 120));
}

TEST_F(MicrosoftBytes, MatMulNBitsCountsWhatItsWeightsBecome) {
  model_.Input("x", {1, 16});
  onnx::TensorProto* w = model_.Floats("w", {1, 1, 8}, {});
  w->set_data_type(onnx::TensorProto::UINT8);
  for (int i = 0; i < 8; ++i) w->add_int32_data(0);
  model_.Floats("s", {1, 1}, {1});
  onnx::NodeProto* node = Node("MatMulNBits", {"x", "w", "s"});
  for (const auto& [name, value] :
       {std::pair("K", 16), std::pair("N", 1), std::pair("block_size", 16)}) {
    Int(node, name, value);
  }
  // 8 + 4 bytes of the file, 64 of floats.
  ImportLimits limits;
  limits.max_weight_bytes = 76;
  EXPECT_TRUE(model_.Import(nullptr, "", limits).ok());
  limits.max_weight_bytes = 75;
  EXPECT_EQ(model_.Import(nullptr, "", limits).status().code(),
            StatusCode::kResourceExhausted);
}

TEST_F(MicrosoftBytes, MatMulNBitsOfOtherLayoutsIsRefused) {
  for (const auto& [name, value] :
       {std::pair("N", int64_t{2}), std::pair("N", int64_t{-1}),
        std::pair("K", int64_t{1} << 62), std::pair("K", int64_t{0}),
        std::pair("block_size", int64_t{0}),
        std::pair("block_size", int64_t{24}),
        std::pair("block_size", int64_t{1} << 62),
        std::pair("bits", int64_t{3}),
        std::pair("weight_prepacked", int64_t{1})}) {
    OnnxModel model;
    model.Input("x", {1, 16});
    model.Output("y");
    onnx::TensorProto* w = model.Floats("w", {1, 1, 8}, {});
    w->set_data_type(onnx::TensorProto::UINT8);
    for (int i = 0; i < 8; ++i) w->add_int32_data(0);
    model.Floats("s", {1, 1}, {1});
    onnx::NodeProto* node = model.Node("MatMulNBits", {"x", "w", "s"}, {"y"});
    node->set_domain("com.microsoft");
    Int(node, name, value);
    for (const auto& [other, usual] :
         {std::pair("K", 16), std::pair("N", 1), std::pair("block_size", 16)}) {
      if (std::string(name) != other) Int(node, other, usual);
    }
    EXPECT_FALSE(model.Import().ok()) << name << " " << value;
  }
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
