// Attention as ONNX Runtime's tools write it.
#include <cmath>

#include "tests/unit/models/graph/microsoft_model.h"

namespace millrace::models::graph {
namespace {

using ::testing::ElementsAre;

class MicrosoftAttention : public MicrosoftModel {};

// One head of one number; weights of zero make all keys alike.
TEST_F(MicrosoftAttention, AttentionHidesKeysOfItsMask) {
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

// Values are 3, 5 and 19. Where no key is seen, all are.
TEST_F(MicrosoftAttention, AttentionHidesKeysBehindTheLengthOfTheirRow) {
  model_.Input("x", {1, 3, 1});
  model_.Input("lengths", {1}, onnx::TensorProto::INT32);
  model_.Floats("w", {1, 3}, {0, 0, 2});
  model_.Floats("b", {3}, {0, 0, 1});
  onnx::NodeProto* node = Node("Attention", {"x", "w", "b", "lengths"});
  Int(node, "num_heads", 1);
  Int(node, "unidirectional", 1);
  for (const auto& [length, last] :
       {std::pair(2, 4.f), std::pair(3, 9.f), std::pair(0, 9.f)}) {
    std::vector<Tensor> inputs;
    inputs.push_back(F({1, 3, 1}, {1, 2, 9}));
    inputs.push_back(I32({1}, {length}));
    const auto y = Run(std::move(inputs));
    ASSERT_EQ(y.size(), 1u);
    EXPECT_THAT(Floats(y[0]), Near({3, 4, last}));
  }
}

// The file tells the rank of its inputs alone.
TEST_F(MicrosoftAttention, MasksMayComeOutOfCastsAndEmbeddings) {
  model_.Input("ids", {1, 2}, onnx::TensorProto::INT32);
  model_.Input("mask", {1, 2}, onnx::TensorProto::INT64);
  model_.Floats("words", {2, 1}, {0, 0});
  model_.Floats("ones", {1}, {1});
  model_.Floats("w", {1, 3}, {0, 0, 0});
  model_.Floats("b", {3}, {0, 0, 7});
  onnx::NodeProto* cast = model_.Node("Cast", {"mask"}, {"keys"});
  Int(cast, "to", onnx::TensorProto::INT32);
  model_
      .Node("EmbedLayerNormalization",
            {"ids", "", "words", "words", "", "ones", "ones", "keys"},
            {"x", "lengths"})
      ->set_domain("com.microsoft");
  for (const char* shown : {"keys", "lengths"}) {
    onnx::NodeProto* node =
        Node("Attention", {"x", "w", "b", shown}, {std::string("y_") + shown});
    Int(node, "num_heads", 1);
  }
  std::vector<Tensor> inputs;
  inputs.push_back(I32({1, 2}, {0, 1}));
  inputs.push_back(I64({1, 2}, {1, 0}));
  const auto y = Run(std::move(inputs));
  ASSERT_EQ(y.size(), 2u);
  EXPECT_THAT(Floats(y[0]), Near({7, 7}));
  EXPECT_THAT(Floats(y[1]), Near({7, 7}));
}

TEST_F(MicrosoftAttention, LengthsCountKeysOfThePast) {
  model_.Input("v", {1, 1, 1});
  model_.Floats("one", {1, 1, 1}, {1});
  model_.Floats("past", {1, 1, 2, 1}, {3, 5});
  onnx::TensorProto* lengths = model_.Floats("lengths", {1}, {});
  lengths->set_data_type(onnx::TensorProto::INT32);
  lengths->add_int32_data(2);
  Int(Node("MultiHeadAttention",
           {"one", "one", "v", "", "lengths", "", "past", "past"}),
      "num_heads", 1);
  const float seen =
      (3 * std::exp(3.f) + 5 * std::exp(5.f)) / (std::exp(3.f) + std::exp(5.f));
  EXPECT_THAT(One(F({1, 1, 1}, {100})), Near({seen}));
}

TEST_F(MicrosoftAttention, AttentionHandsOnItsKeysAndValues) {
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

TEST_F(MicrosoftAttention, MultiHeadAttentionHasBiasesSideBySide) {
  model_.Input("v", {1, 2, 1});
  model_.Floats("q", {1, 1, 1}, {0});
  model_.Floats("k", {1, 2, 1}, {1, 1});
  model_.Floats("b", {3}, {0, 0, 10});
  Int(Node("MultiHeadAttention", {"q", "k", "v", "b"}), "num_heads", 1);
  EXPECT_THAT(One(F({1, 2, 1}, {1, 3})), Near({12}));
}

TEST_F(MicrosoftAttention, BiasesAreAsWideAsWhatTheyAreAddedTo) {
  model_.Input("v", {1, 1, 3});
  model_.Floats("q", {1, 1, 1}, {0});
  model_.Floats("b", {5}, {7, 8, 10, 20, 30});
  Int(Node("MultiHeadAttention", {"q", "q", "v", "b"}), "num_heads", 1);
  EXPECT_THAT(One(F({1, 1, 3}, {1, 2, 3})), Near({11, 22, 33}));
}

// Keys are 0 and ln 3, the query 0 + 1.
TEST_F(MicrosoftAttention, KeysThatHaveHeadsHaveTheirBiases) {
  model_.Input("v", {1, 1, 2, 1});
  model_.Floats("q", {1, 1, 1}, {0});
  model_.Floats("k", {1, 1, 2, 1}, {0, 1.0986123f});
  model_.Floats("b", {3}, {1, 50, 50});
  Int(Node("MultiHeadAttention", {"q", "k", "v", "b"}), "num_heads", 1);
  EXPECT_THAT(One(F({1, 1, 2, 1}, {4, 8})), Near({7}));
}

// Two heads of one number: queries are 0, keys alike.
TEST_F(MicrosoftAttention, MultiHeadAttentionUnpacksWhatStandsTogether) {
  model_.Input("qkv", {1, 2, 2, 3, 1});
  Int(Node("MultiHeadAttention", {"qkv"}), "num_heads", 2);
  EXPECT_THAT(One(F({1, 2, 2, 3, 1}, {0, 1, 2, 0, 1, 3, 0, 1, 4, 0, 1, 9})),
              Near({3, 6, 3, 6}));
}

TEST_F(MicrosoftAttention, MultiHeadAttentionUnpacksKeysAndValues) {
  model_.Input("kv", {1, 2, 2, 2, 1});
  model_.Floats("q", {1, 1, 2}, {0, 0});
  Int(Node("MultiHeadAttention", {"q", "kv"}), "num_heads", 2);
  EXPECT_THAT(One(F({1, 2, 2, 2, 1}, {1, 2, 1, 3, 1, 4, 1, 9})), Near({3, 6}));
}

TEST_F(MicrosoftAttention, SharedCachesAreRefused) {
  for (const size_t place : {8, 9}) {
    OnnxModel model;
    model.Input("x", {1, 1, 1});
    model.Output("y");
    std::vector<std::string> operands(place + 1);
    operands[0] = operands[1] = operands[2] = operands[place] = "x";
    onnx::NodeProto* node = model.Node("MultiHeadAttention", operands, {"y"});
    node->set_domain("com.microsoft");
    Int(node, "num_heads", 1);
    EXPECT_EQ(model.Import().status().code(), StatusCode::kUnimplemented);
  }
}

// Weights of zero but for values, which are 0.5 * 2 * (x - 1) + 1.
TEST_F(MicrosoftAttention, QAttentionMultipliesBytes) {
  model_.Input("x", {1, 2, 1}, onnx::TensorProto::UINT8);
  onnx::TensorProto* w = model_.Floats("w", {1, 3}, {});
  w->set_data_type(onnx::TensorProto::INT8);
  for (const int v : {0, 0, 2}) w->add_int32_data(v);
  model_.Floats("b", {3}, {0, 0, 1});
  model_.Floats("s", {}, {0.5});
  model_.Floats("t", {}, {1});
  onnx::TensorProto* zero = model_.Floats("z", {}, {});
  zero->set_data_type(onnx::TensorProto::UINT8);
  zero->add_int32_data(1);
  onnx::NodeProto* node =
      Node("QAttention", {"x", "w", "b", "s", "t", "", "z"});
  Int(node, "num_heads", 1);
  Int(node, "unidirectional", 1);
  EXPECT_THAT(One(U8({1, 2, 1}, {3, 7})), Near({3, 5}));
}

}  // namespace
}  // namespace millrace::models::graph
