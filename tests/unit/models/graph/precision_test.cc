// Layers at reduced precision: what bf16 rounds, and what stays as it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "models/cpu/isa.h"
#include "models/graph/execution_context.h"
#include "models/graph/infer_and_fold.h"
#include "models/graph/passes/passes.h"
#include "models/tensor/float16.h"
#include "tests/support/vector_isa.h"
#include "tests/unit/models/graph/graph_maker.h"

namespace millrace::models::graph {
namespace {

Tensor Rounded(const Tensor& x) {
  Tensor rounded = Tensor::Make(DType::kF32, x.shape());
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    rounded.data<float>()[i] =
        BFloat16ToFloat(FloatToBFloat16(x.data<float>()[i]));
  }
  return rounded;
}

double Difference(const Tensor& got, const Tensor& want) {
  EXPECT_EQ(got.shape(), want.shape());
  double worst = 0;
  double largest = 0;
  for (int64_t i = 0; i < want.num_elements(); ++i) {
    const double w = want.data<float>()[i];
    worst = std::max(worst, std::abs(got.data<float>()[i] - w));
    largest = std::max(largest, std::abs(w));
  }
  return worst / largest;
}

class Bf16Layers : public testing::Test {
 protected:
  void SetUp() override {
    if (FindBf16Products("auto") == nullptr) {
      GTEST_SKIP() << "this CPU has no fast products of bf16";
    }
  }

  static Tensor Run(const Graph& graph, const std::vector<Tensor>& inputs,
                    const CompileOptions& options) {
    auto context = CreateInstance(graph.Copy(), {options, {}});
    EXPECT_TRUE(context.ok()) << context.status().ToString();
    auto outputs = (*context)->Run(inputs);
    EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
    return std::move((*outputs)[0]);
  }

  // One layer: as the interpreter computes it of rounded factors, and not of
  // those that are not.
  static void ExpectRounds(GraphMaker& m) {
    ASSERT_EQ(m.graph.nodes.size(), 1u);
    Graph rounded = m.graph.Copy();
    const ValueId w = rounded.nodes[0].inputs[1];
    auto& weight = rounded.value(w).constant;
    weight = std::make_shared<const Tensor>(Rounded(*weight));
    std::vector<Tensor> inputs;
    inputs.push_back(Rounded(m.Inputs()[0]));
    const Tensor want = Run(rounded, inputs, {.interpret = true});
    const Tensor exact = Run(m.graph, m.Inputs(), {.interpret = true});
    const Tensor got =
        Run(m.graph, m.Inputs(), {.precision = Precision::kBf16});
    EXPECT_LT(Difference(got, want), 2e-5);
    EXPECT_GT(Difference(got, exact), 1e-4);
    EXPECT_LT(Difference(got, exact), 2e-2);
  }
};

TEST_F(Bf16Layers, ProductsWithConstantsRoundTheirFactors) {
  for (const int64_t rows : {1, 7, 130}) {
    GraphMaker m;
    const ValueId x = m.Input({rows, 33});
    m.graph.AddOutput("y", m.Node("MatMul", {x, m.Weight({33, 70})}));
    ExpectRounds(m);
  }
  GraphMaker m;
  const ValueId x = m.Input({5, 64});
  m.graph.AddOutput("y", m.Node("Gemm", {x, m.Weight({19, 64}), m.Weight({19})},
                                {{"transB", int64_t{1}}}));
  ExpectRounds(m);
}

TEST_F(Bf16Layers, ConvolutionsRoundTheirFactors) {
  for (const int64_t group : {1, 2}) {
    for (const int64_t kernel : {1, 3}) {
      GraphMaker m;
      const ValueId x = m.Input({2, 6, 9, 31});
      const Attrs attrs = {{"group", group},
                           {"pads", std::vector<int64_t>(4, kernel / 2)}};
      m.graph.AddOutput(
          "y",
          m.Node("Conv", {x, m.Weight({8, 6 / group, kernel, kernel})}, attrs));
      ExpectRounds(m);
    }
  }
}

TEST_F(Bf16Layers, TransposedConvolutionsRoundTheirFactors) {
  GraphMaker m;
  const ValueId x = m.Input({2, 6, 5, 7});
  m.graph.AddOutput("y", m.Node("ConvTranspose", {x, m.Weight({6, 4, 2, 2})},
                                {{"strides", std::vector<int64_t>{2, 2}}}));
  ExpectRounds(m);
}

// It is a layer for int8 and one for bf16.
TEST(RoundableLayersTest, ATransposedConvolutionIsOneLayer) {
  GraphMaker m;
  const ValueId x = m.Input({2, 6, 5, 7});
  m.graph.AddOutput("y", m.Node("ConvTranspose", {x, m.Weight({6, 4, 2, 2})},
                                {{"strides", std::vector<int64_t>{2, 2}}}));
  const StatusOr<Graph> folded = InferAndFold(m.graph, {});
  ASSERT_TRUE(folded.ok()) << folded.status().ToString();
  EXPECT_EQ(RoundableLayers(*folded).size(), 1u);
}

// States are rounded on their way into the next step's product.
TEST_F(Bf16Layers, RecurrentLayersRoundTheirFactors) {
  for (const char* op : {"LSTM", "GRU"}) {
    const int64_t gates = op[0] == 'L' ? 4 : 3;
    GraphMaker m;
    const ValueId x = m.Input({7, 3, 20});
    const Attrs attrs = {{"hidden_size", int64_t{16}},
                         {"linear_before_reset", int64_t{1}}};
    m.graph.AddOutput(
        "y",
        m.Node(
            op,
            {x, m.Weight({1, gates * 16, 20}), m.Weight({1, gates * 16, 16})},
            op[0] == 'L' ? Attrs{{"hidden_size", int64_t{16}}} : attrs));
    const Tensor exact = Run(m.graph, m.Inputs(), {});
    const Tensor got =
        Run(m.graph, m.Inputs(), {.precision = Precision::kBf16});
    EXPECT_GT(Difference(got, exact), 1e-5) << op;
    EXPECT_LT(Difference(got, exact), 5e-2) << op;
  }
}

// Softmax(q · kᵀ) · v, as an operator and spelled out.
TEST_F(Bf16Layers, AttentionRoundsItsFactors) {
  for (const bool spelled_out : {false, true}) {
    GraphMaker m;
    const ValueId q = m.Input({2, 3, 9, 32});
    const ValueId k = m.Input({2, 3, 11, 32});
    const ValueId v = m.Input({2, 3, 11, 16});
    if (spelled_out) {
      const ValueId k_t = m.Node("Transpose", {k},
                                 {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
      const ValueId p = m.Node("Softmax", {m.Node("MatMul", {q, k_t})});
      m.graph.AddOutput("y", m.Node("MatMul", {p, v}));
    } else {
      m.graph.AddOutput("y", m.Node("Attention", {q, k, v}));
    }
    const Tensor exact = Run(m.graph, m.Inputs(), {});
    InstanceOptions options;
    options.precision = Precision::kBf16;
    const Tensor got = Run(m.graph, m.Inputs(), options);
    EXPECT_GT(Difference(got, exact), 1e-4);
    EXPECT_LT(Difference(got, exact), 5e-2);
    options.f32_layers = {spelled_out ? "MatMul" : "Attention"};
    const Tensor f32 = Run(m.graph, m.Inputs(), options);
    EXPECT_EQ(Difference(f32, exact), 0);
  }
}

// Where a quantised graph rounds the weights to bytes, too.
TEST_F(Bf16Layers, AttentionOfQuantisedGraphsRoundsItsFactors) {
  GraphMaker m;
  const ValueId q = m.Input({2, 3, 9, 32});
  const ValueId k_t = m.Input({2, 3, 32, 11});
  const ValueId v = m.Input({2, 3, 11, 16});
  ValueId p = m.Node("Softmax", {m.Node("MatMul", {q, k_t})});
  const ValueId scale = m.Number(1.0f / 255);
  const ValueId zero =
      m.graph.AddConstant("zero", Tensor::Make(DType::kU8, {}));
  p = m.Node("QuantizeLinear", {p, scale, zero});
  p = m.Node("DequantizeLinear", {p, scale, zero});
  m.graph.AddOutput("y", m.Node("MatMul", {p, v}));
  const Tensor exact = Run(m.graph, m.Inputs(), {});
  const Tensor got = Run(m.graph, m.Inputs(), {.precision = Precision::kBf16});
  EXPECT_GT(Difference(got, exact), 1e-4);
  EXPECT_LT(Difference(got, exact), 5e-2);
}

TEST_F(Bf16Layers, StayInF32WhereTheyAreNamed) {
  GraphMaker m;
  ValueId x = m.Input({5, 64});
  x = m.Node("MatMul", {x, m.Weight({64, 64})});
  m.graph.AddOutput("y", m.Node("MatMul", {x, m.Weight({64, 9})}));
  const Tensor want = Run(m.graph, m.Inputs(), {});
  InstanceOptions options;
  options.precision = Precision::kBf16;
  const Tensor both = Run(m.graph, m.Inputs(), options);
  options.f32_layers = {"MatMul"};
  const Tensor second = Run(m.graph, m.Inputs(), options);
  options.f32_layers = {"MatMul", "MatMul#2"};
  const Tensor none = Run(m.graph, m.Inputs(), options);
  EXPECT_EQ(Difference(none, want), 0);
  EXPECT_GT(Difference(second, want), 1e-4);
  EXPECT_GT(Difference(both, second), 1e-4);

  options.f32_layers = {"MatMul#3"};
  const auto wrong = CreateInstance(m.graph.Copy(), options);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(wrong.status().message().find("'MatMul#3'"), std::string::npos);
}

TEST_F(Bf16Layers, AreThoseOfF32WhereTheKernelsHaveNone) {
  GraphMaker m;
  const ValueId x = m.Input({5, 64});
  m.graph.AddOutput("y", m.Node("MatMul", {x, m.Weight({64, 9})}));
  const Tensor want = Run(m.graph, m.Inputs(), {.isa = kVectorIsa});
  const Tensor got = Run(m.graph, m.Inputs(),
                         {.isa = kVectorIsa, .precision = Precision::kBf16});
  EXPECT_EQ(Difference(got, want), 0);
}

}  // namespace
}  // namespace millrace::models::graph
