// Graphs with QuantizeLinear and DequantizeLinear: layers on bytes give what
// the interpreter gives. A sum that falls on a tie may round to the other side,
// so results may differ by a step of their scale here and there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/unit/models/graph/quant_maker.h"

namespace millrace::models::graph {
namespace {

TEST(PlanQuantised, AConvolutionItsFunctionAndItsPoolWorkOnBytes) {
  for (const DType bytes : {DType::kU8, DType::kI8}) {
    QuantMaker m(bytes);
    ValueId x = m.Rounded(m.Input({2, 12, 11, 9}), 0.03f, 120);
    x = m.Node("Conv", {x, m.Bytes({20, 12, 3, 3}, 0), m.Weight({20})},
               {{"pads", Ints64{1, 1, 1, 1}}});
    x = m.Rounded(x, 0.05f, 131);
    x = m.Rounded(m.Node("Relu", {x}), 0.04f, 0);
    x = m.Node("MaxPool", {x},
               {{"kernel_shape", Ints64{3, 3}}, {"strides", Ints64{2, 2}}});
    const std::string plan = m.ExpectSameSteps(m.Rounded(x, 0.04f, 0), 0.04);
    EXPECT_NE(plan.find("Int8 Conv"), std::string::npos) << plan;
    EXPECT_NE(plan.find("lookup"), std::string::npos) << plan;
    EXPECT_NE(plan.find("Int8 MaxPool"), std::string::npos) << plan;
    EXPECT_EQ(plan.find("Relu"), std::string::npos) << plan;
  }
}

TEST(PlanQuantised, AResidualJoinsTheConvolutionThatIsQuantisedBefore) {
  QuantMaker m;
  const ValueId x = m.Rounded(m.Input({1, 16, 8, 8}), 0.03f, 128);
  ValueId y = m.Node("Conv", {x, m.Bytes({16, 16, 1, 1}, 0)});
  y = m.Node("Add", {m.Rounded(y, 0.02f, 100), x});
  y = m.Rounded(m.Node("Relu", {y}), 0.03f, 3);
  const std::string plan = m.ExpectSameSteps(y, 0.03);
  EXPECT_NE(plan.find("q +residual relu"), std::string::npos) << plan;
}

TEST(PlanQuantised, AResidualInFloatsIsCountedInStepsOfTheResult) {
  QuantMaker m;
  const ValueId x = m.Rounded(m.Input({1, 16, 8, 8}), 0.03f, 128);
  ValueId y = m.Node("Conv", {x, m.Bytes({16, 16, 1, 1}, 0), m.Weight({16})});
  y = m.Node("Add", {y, m.Input({1, 16, 8, 8})});
  y = m.Rounded(m.Node("Relu", {y}), 0.03f, 3);
  const std::string plan = m.ExpectSameSteps(y, 0.03);
  EXPECT_NE(plan.find("+residual(f32) relu"), std::string::npos) << plan;
}

TEST(PlanQuantised, WhatFollowsARoundedProductJoinsIt) {
  QuantMaker m;
  const ValueId x = m.Rounded(m.Input({7, 30}), 0.03f, 140);
  ValueId y = m.Rounded(m.Node("MatMul", {x, m.Bytes({30, 40}, 1)}), 0.04f, 90);
  y = m.Node("Mul", {y, m.Number(0.5f)});
  y = m.Node("Gelu", {m.Node("Add", {m.Weight({40}), y})});
  y = m.Rounded(y, 0.02f, 10);
  y = m.Rounded(m.Node("MatMul", {y, m.Bytes({40, 30}, 1)}), 0.04f, 128);
  y = m.Node("Add", {m.Node("Add", {y, m.Weight({30})}), x});
  const std::string plan = m.ExpectSameSteps(m.Rounded(y, 0.06f, 120), 0.06);
  EXPECT_NE(plan.find("30 -> 40 q +bias gelu\n"), std::string::npos) << plan;
  EXPECT_NE(plan.find("40 -> 30 q +bias +residual\n"), std::string::npos)
      << plan;
  EXPECT_EQ(plan.find("Pointwise"), std::string::npos) << plan;
}

// QLinearMatMul, QLinearAdd and what stands between bytes, as quantize_static
// of ONNX Runtime writes them: the table comes behind a bias of its own.
TEST(PlanQuantised, ATableJoinsALayerThatHasABiasBehindItsBytes) {
  QuantMaker m;
  const ValueId x = m.Rounded(m.Input({7, 30}), 0.03f, 140);
  ValueId y = m.Rounded(m.Node("MatMul", {x, m.Bytes({30, 40}, 1)}), 0.04f, 90);
  y = m.Rounded(m.Node("Add", {y, m.Weight({40})}), 0.05f, 110);
  y = m.Rounded(m.Node("Gelu", {y}), 0.04f, 10);
  const std::string plan = m.ExpectSameSteps(y, 0.04);
  EXPECT_NE(plan.find("30 -> 40 q +bias lookup\n"), std::string::npos) << plan;
}

TEST(PlanQuantised, WhatJoinsALayerOfMeasuredBytesLeavesItsMeasure) {
  for (const bool table : {false, true}) {
    QuantMaker m;
    const ValueId bytes = m.Node("DynamicQuantizeLinear", {m.Input({7, 30})});
    const ValueId scale = m.graph.AddValue("scale");
    const ValueId zero = m.graph.AddValue("zero");
    m.graph.nodes.back().outputs = {bytes, scale, zero};
    const ValueId x = m.Node("DequantizeLinear", {bytes, scale, zero});
    ValueId y =
        m.Rounded(m.Node("MatMul", {x, m.Bytes({30, 40}, 1)}), 0.04f, 90);
    y = table ? m.Node("Gelu", {y}) : m.Node("Add", {y, m.Weight({40})});
    const std::string plan = m.ExpectSameSteps(m.Rounded(y, 0.05f, 90), 0.05);
    const std::string joined = table ? " measured lookup" : " measured q +bias";
    EXPECT_NE(plan.find("30 -> 40" + joined + "\n"), std::string::npos) << plan;
  }
}

TEST(PlanQuantised, ProductsOfActivationsAreNotRoundedForNothing) {
  std::vector<Tensor> results;
  for (const bool rounds : {false, true}) {
    QuantMaker m;
    const auto rounded = [&](ValueId id, float scale, int32_t zero) {
      return rounds ? m.Rounded(id, scale, zero) : id;
    };
    const ValueId q = rounded(m.Input({1, 2, 9, 8}), 0.1f, 128);
    const ValueId k_t = rounded(m.Input({1, 2, 8, 11}), 0.1f, 128);
    const ValueId v = rounded(m.Input({1, 2, 11, 8}), 0.1f, 128);
    ValueId p = rounded(m.Node("MatMul", {q, k_t}), 0.2f, 128);
    p = rounded(m.Node("Softmax", {p}), 0.01f, 0);
    ValueId y = m.Node("MatMul", {p, v});
    // A layer behind it wants bytes, however they come.
    y = m.Rounded(m.Node("Reshape", {y, m.Ints({18, 8})}), 0.02f, 128);
    y = m.Node("MatMul", {y, m.Bytes({8, 5}, 1)});
    m.graph.AddOutput("y", y);
    auto context = CreateInstance(m.graph.Copy(), {});
    ASSERT_TRUE(context.ok());
    auto result = (*context)->Run(m.Inputs());
    ASSERT_TRUE(result.ok()) << result.status().message();
    results.push_back(std::move((*result)[0]));
    const std::string plan = (*context)->PlanText();
    EXPECT_NE(plan.find("Attention"), std::string::npos) << plan;
    EXPECT_NE(plan.find("Int8 Linear"), std::string::npos) << plan;
  }
  for (int64_t i = 0; i < results[0].num_elements(); ++i) {
    EXPECT_EQ(results[0].data<float>()[i], results[1].data<float>()[i]);
  }
}

TEST(PlanQuantised, GroupsDepthwiseAndMeansWorkOnBytes) {
  QuantMaker m;
  ValueId x = m.Rounded(m.Input({2, 24, 9, 9}), 0.03f, 128);
  x = m.Node("Conv", {x, m.Bytes({24, 1, 3, 3}, 0), m.Weight({24})},
             {{"group", int64_t{24}}, {"pads", Ints64{1, 1, 1, 1}}});
  x = m.Rounded(x, 0.03f, 128);
  x = m.Node("Conv", {x, m.Bytes({36, 8, 1, 1}, 0)}, {{"group", int64_t{3}}});
  x = m.Rounded(m.Node("HardSwish", {x}), 0.03f, 20);
  x = m.Rounded(m.Node("GlobalAveragePool", {x}), 0.01f, 20);
  const std::string plan = m.ExpectSameSteps(x, 0.01);
  for (const char* step : {"Int8 Depthwise", "3 groups", "Int8 Mean"}) {
    EXPECT_NE(plan.find(step), std::string::npos) << plan;
  }
}

TEST(PlanQuantised, ElementwiseOperatorsAndConcatReadAndWriteBytes) {
  QuantMaker m;
  const ValueId x = m.Rounded(m.Input({1, 8, 6, 6}), 0.03f, 128);
  const ValueId gate = m.Rounded(m.Input({1, 8, 1, 1}), 0.02f, 110);
  const ValueId y = m.Rounded(m.Node("Mul", {x, gate}), 0.05f, 99);
  const ValueId z = m.Node("Concat", {x, y}, {{"axis", int64_t{1}}});
  const std::string plan = m.ExpectSameSteps(m.Rounded(z, 0.04f, 128), 0.04);
  EXPECT_NE(plan.find("Int8 Pointwise"), std::string::npos) << plan;
  EXPECT_NE(plan.find("Lookup"), std::string::npos) << plan;
  // Both parts are made in their place.
  EXPECT_NE(plan.find("Dequantize 576"), std::string::npos) << plan;
  EXPECT_EQ(plan.find("Concat"), std::string::npos) << plan;
}

// What is quantised behind copied pixels is quantised before.
TEST(PlanQuantised, CopiedPixelsAreBytes) {
  QuantMaker m;
  ValueId x = m.Rounded(m.Input({2, 12, 5, 6}), 0.03f, 120);
  x = m.Node("Conv", {x, m.Bytes({20, 12, 3, 3}, 0), m.Weight({20})});
  x = m.Node("Relu", {m.Rounded(x, 0.05f, 131)});
  x = m.Node("Resize", {x, kNoValue, kNoValue, m.Ints({2, 20, 6, 11})},
             {{"mode", std::string("nearest")}});
  x = m.Rounded(x, 0.04f, 0);
  x = m.Node("Conv", {x, m.Bytes({8, 20, 1, 1}, 0), m.Weight({8})});
  const std::string plan = m.ExpectSameSteps(m.Rounded(x, 0.05f, 128), 0.05);
  EXPECT_NE(plan.find("Resize [2, 3, 4, 8] -> [2, 6, 11, 8] UINT8"),
            std::string::npos)
      << plan;
  EXPECT_EQ(plan.find("f32"), std::string::npos) << plan;
}

TEST(PlanQuantised, MixedPixelsAreBytes) {
  for (const std::string mode : {"linear", "cubic"}) {
    QuantMaker m;
    ValueId x = m.Rounded(m.Input({2, 12, 5, 6}), 0.03f, 120);
    x = m.Node("Conv", {x, m.Bytes({20, 12, 3, 3}, 0), m.Weight({20})});
    x = m.Node("Relu", {m.Rounded(x, 0.05f, 131)});
    x = m.Node("Resize", {x, kNoValue, kNoValue, m.Ints({2, 20, 6, 11})},
               {{"mode", mode}});
    const std::string plan = m.ExpectSameSteps(m.Rounded(x, 0.043f, 9), 0.043);
    EXPECT_NE(plan.find("Resize [2, 3, 4, 20] -> [2, 6, 11, 20] UINT8"),
              std::string::npos)
        << plan;
    EXPECT_NE(plan.find("+bias lookup"), std::string::npos) << plan;
  }
}

// Kernels side by side, kernels that overlap, with padding, and signals; with
// what may stand behind.
TEST(PlanQuantised, TransposedConvolutionsWorkOnBytes) {
  struct Case {
    Shape x;
    Shape w;
    Attrs attrs;
  };
  const Case cases[] = {
      {{2, 12, 5, 7}, {12, 40, 2, 2}, {{"strides", Ints64{2, 2}}}},
      {{2, 12, 5, 14}, {12, 9, 1, 3}, {{"strides", Ints64{1, 3}}}},
      {{1, 8, 6, 5},
       {8, 36, 4, 4},
       {{"strides", Ints64{2, 2}}, {"pads", Ints64{1, 1, 1, 1}}}},
      {{1, 7, 5, 6},
       {7, 10, 3, 2},
       {{"strides", Ints64{2, 2}}, {"output_padding", Ints64{1, 1}}}},
      {{2, 16, 9}, {16, 20, 5}, {{"strides", Ints64{3}}}}};
  for (const Case& c : cases) {
    QuantMaker m;
    const int64_t outputs = c.w[1];
    const ValueId w = m.Bytes(c.w, 1);
    const ValueId bias = m.Weight({outputs});
    const ValueId x = m.Rounded(m.Input(c.x), 0.03f, 120);
    ValueId y = m.Node("ConvTranspose", {x, w, bias}, c.attrs);
    y = m.Node("Relu", {m.Rounded(y, 0.05f, 131)});
    ValueId z = m.Node("ConvTranspose", {x, w}, c.attrs);
    z = m.Node("Add", {m.Rounded(z, 0.05f, 120), m.Rounded(y, 0.0613f, 7)});
    const std::string plan =
        m.ExpectSameSteps(m.Rounded(z, 0.0937f, 99), 0.0937);
    EXPECT_EQ(plan.find(" ConvTranspose"), plan.find("Int8 ConvTranspose") + 4)
        << plan;
    EXPECT_NE(plan.find("+bias lookup"), std::string::npos) << plan;
    EXPECT_NE(plan.find("q +residual"), std::string::npos) << plan;
  }
}

TEST(PlanQuantised, ATransposedConvolutionOfGroupsStaysInFloats) {
  QuantMaker m;
  ValueId x = m.Rounded(m.Input({1, 16, 5, 6}), 0.03f, 120);
  x = m.Node("ConvTranspose", {x, m.Bytes({16, 8, 2, 2}, 1)},
             {{"group", int64_t{2}}, {"strides", Ints64{2, 2}}});
  const std::string plan = m.ExpectSameSteps(m.Rounded(x, 0.05f, 128), 0.05);
  EXPECT_EQ(plan.find("Int8 ConvTranspose"), std::string::npos) << plan;
}

TEST(PlanQuantised, AProductAndASumForEachChannelAreOnePass) {
  QuantMaker m;
  ValueId x = m.Rounded(m.Input({2, 24, 9, 8}), 0.03f, 128);
  x = m.Node("MaxPool", {x}, {{"kernel_shape", Ints64{2, 2}}});
  x = m.Rounded(x, 0.03f, 128);
  const ValueId gate = m.Rounded(m.Input({2, 24, 1, 1}), 0.02f, 110);
  ValueId y = m.Node("Mul", {x, m.Weight({24, 1, 1})});
  y = m.Node("Sub", {m.Weight({1, 24, 1, 1}), y});
  y = m.Rounded(m.Node("Relu", {y}), 0.02f, 12);
  y = m.Rounded(m.Node("Mul", {gate, y}), 0.05f, 99);
  const std::string plan = m.ExpectSameSteps(y, 0.05);
  EXPECT_NE(plan.find("3 functions of 3"), std::string::npos) << plan;
  EXPECT_NE(plan.find("1 functions of 2"), std::string::npos) << plan;
  EXPECT_EQ(plan.find("Pointwise"), std::string::npos) << plan;
}

TEST(PlanQuantised, LinearLayersTakeEitherLayoutAndGiveFloats) {
  for (const bool kn : {true, false}) {
    QuantMaker m;
    const ValueId x = m.Rounded(m.Input({7, 30}), 0.03f, 140);
    const ValueId w = kn ? m.Bytes({30, 40}, 1) : m.Bytes({40, 30}, 0);
    const ValueId y =
        m.Node("Gemm", {x, w, m.Weight({40})}, {{"transB", int64_t{!kn}}});
    const std::string plan = m.ExpectSameSteps(y, 1e-4);
    EXPECT_NE(plan.find("Int8 Linear 7 x 30 -> 40"), std::string::npos) << plan;
  }
}

TEST(PlanQuantised, WeightsWithZeroPointsThatDoNotFitStayInFloats) {
  QuantMaker m;
  const ValueId x = m.Rounded(m.Input({3, 8}), 0.03f, 140);
  Tensor w = Tensor::Make(DType::kU8, {8, 5});
  for (int64_t i = 0; i < 40; ++i) {
    w.data<uint8_t>()[i] = static_cast<uint8_t>(i * 6);
  }
  const ValueId weight = m.Node(
      "DequantizeLinear",
      {m.graph.AddConstant("w", std::move(w)), m.Number(0.01f), m.Zero(3)});
  const std::string plan =
      m.ExpectSameSteps(m.Node("MatMul", {x, weight}), 1e-4);
  EXPECT_EQ(plan.find("Int8 Linear"), std::string::npos) << plan;
}

TEST(PlanQuantised, OperatorsOnIntegersAreLayersOnBytesToo) {
  QuantMaker m;
  const ValueId x = m.Quantised(m.Input({1, 6, 7, 7}), 0.03f, 128);
  Tensor w = Tensor::Make(DType::kI8, {10, 6, 3, 3});
  for (int64_t i = 0; i < w.num_elements(); ++i) {
    w.data<int8_t>()[i] = static_cast<int8_t>(i * 37 % 255 - 127);
  }
  Tensor bias = Tensor::Make(DType::kI32, {10});
  for (int i = 0; i < 10; ++i) bias.data<int32_t>()[i] = 1000 * i - 4000;
  Tensor zero = Tensor::Make(DType::kI8, {});
  *zero.data<int8_t>() = 0;
  const ValueId y = m.Node(
      "QLinearConv",
      {x, m.Number(0.03f), m.Zero(128), m.graph.AddConstant("w", std::move(w)),
       m.Number(0.004f), m.graph.AddConstant("z", std::move(zero)),
       m.Number(0.1f), m.Zero(128), m.graph.AddConstant("b", std::move(bias))});
  const std::string plan = m.ExpectSameSteps(
      m.Node("DequantizeLinear", {y, m.Number(0.1f), m.Zero(128)}), 0.1);
  EXPECT_NE(plan.find("Int8 Conv"), std::string::npos) << plan;
}

// What quantize_dynamic of ONNX Runtime writes, once as it is and once with
// something between that hides the pattern.
TEST(PlanQuantised, LayersOfMeasuredBytesGiveWhatTheirIntegersGive) {
  for (const bool conv : {false, true}) {
    for (const bool of_outputs : {false, true}) {
      GraphMaker m;
      const ValueId x = m.Input(conv ? Shape{2, 6, 7, 9} : Shape{2, 9, 6});
      const ValueId bytes = m.Node("DynamicQuantizeLinear", {x});
      const ValueId scale = m.graph.AddValue("scale");
      const ValueId zero = m.graph.AddValue("zero");
      m.graph.nodes.back().outputs = {bytes, scale, zero};
      Tensor w =
          Tensor::Make(DType::kU8, conv ? Shape{10, 6, 3, 3} : Shape{6, 10});
      for (int64_t i = 0; i < w.num_elements(); ++i) {
        w.data<uint8_t>()[i] = static_cast<uint8_t>(i * 37 % 251);
      }
      Tensor w_zero = Tensor::Make(DType::kU8, {});
      *w_zero.data<uint8_t>() = 125;
      const ValueId product =
          m.Node(conv ? "ConvInteger" : "MatMulInteger",
                 {bytes, m.graph.AddConstant("w", std::move(w)), zero,
                  m.graph.AddConstant("z", std::move(w_zero))},
                 conv ? Attrs{{"pads", Ints64{1, 1, 1, 1}}} : Attrs{});
      const ValueId floats = m.Node("Cast", {product}, {{"to", int64_t{1}}});
      const ValueId factors =
          of_outputs ? m.Weight(conv ? Shape{1, 10, 1, 1} : Shape{10})
                     : m.Number(0.01f);
      const ValueId scales = m.Node("Mul", {scale, factors});
      const ValueId bias = m.Weight(conv ? Shape{1, 10, 1, 1} : Shape{10});
      for (const bool hidden : {false, true}) {
        const ValueId y = m.Node(
            "Mul", {hidden ? m.Node("Identity", {floats}) : floats, scales});
        m.graph.AddOutput("y" + std::to_string(int{hidden}),
                          m.Node("Add", {y, bias}));
      }
      auto context = CreateInstance(m.graph.Copy(), {});
      ASSERT_TRUE(context.ok()) << context.status().message();
      const auto results = (*context)->Run(m.Inputs());
      ASSERT_TRUE(results.ok()) << results.status().message();
      const std::string plan = (*context)->PlanText();
      EXPECT_NE(plan.find("measured +bias -> f32"), std::string::npos) << plan;
      const Tensor& got = (*results)[0];
      const Tensor& want = (*results)[1];
      ASSERT_EQ(got.shape(), want.shape());
      for (int64_t i = 0; i < got.num_elements(); ++i) {
        const float v = want.data<float>()[i];
        // A product and a sum that are rounded once or twice.
        EXPECT_NEAR(got.data<float>()[i], v, 1e-5f * (20 + std::abs(v)));
      }
    }
  }
}

// One tensor of bytes stands for two weights, with zeros of its own each.
TEST(PlanQuantised, LayersMayShareTheirBytes) {
  QuantMaker m;
  Tensor bytes = Tensor::Make(DType::kI8, {6, 4, 1, 1});
  for (int i = 0; i < 24; ++i) {
    bytes.data<int8_t>()[i] = static_cast<int8_t>(i * 37 % 200 - 100);
  }
  const ValueId w = m.graph.AddConstant("w", std::move(bytes));
  ValueId sum = kNoValue;
  struct Layer {
    int64_t groups;
    int8_t zero;
  };
  for (const auto& [groups, zero] : {Layer{1, 0}, Layer{1, 20}, Layer{2, 0}}) {
    const ValueId x = m.Rounded(m.Input({1, 4 * groups, 5, 5}), 0.02f, 120);
    Tensor zeros = Tensor::Make(DType::kI8, {});
    *zeros.data<int8_t>() = zero;
    const ValueId weight = m.Node(
        "DequantizeLinear",
        {w, m.Number(0.01f), m.graph.AddConstant("z", std::move(zeros))});
    const ValueId y =
        m.Rounded(m.Node("Conv", {x, weight}, {{"group", groups}}), 0.05f, 128);
    sum = sum == kNoValue ? y : m.Node("Add", {sum, y});
  }
  const std::string plan = m.ExpectSameSteps(sum, 0.05);
  EXPECT_NE(plan.find("Int8 Conv"), std::string::npos) << plan;
}

}  // namespace
}  // namespace millrace::models::graph
