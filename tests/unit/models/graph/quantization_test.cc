// Our own quantisation: tables as text, calibration, and what it costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "models/graph/quantize/calibrate.h"
#include "models/graph/quantize/insert.h"
#include "tests/unit/models/graph/graph_maker.h"

namespace millrace::models::graph {
namespace {

using Ints64 = std::vector<int64_t>;

TEST(QuantizationTable, IsTheSameAfterItWasWrittenAndRead) {
  const QuantizationTable table{
      "mse", {{"conv", -1.5f, 2.25f, 0.01, true}, {"fc", 0, 3, 0.5, false}}};
  const auto read = ReadQuantization(QuantizationJson(table));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->method, "mse");
  ASSERT_EQ(read->layers.size(), 2u);
  EXPECT_EQ(read->layers[0].name, "conv");
  EXPECT_EQ(read->layers[0].low, -1.5f);
  EXPECT_EQ(read->layers[0].high, 2.25f);
  EXPECT_TRUE(read->layers[0].in_bytes);
  EXPECT_FALSE(read->layers[1].in_bytes);
  EXPECT_NEAR(read->layers[1].error, 0.5, 1e-6);
}

TEST(QuantizationTable, AFileThatIsNoneIsAnErrorThatSaysWhy) {
  for (const char* text :
       {"", "{}", "[]", R"({"format": "millrace-quantization"})",
        R"({"format": "millrace-quantization", "version": 1})",
        R"({"format": "millrace-quantization", "version": 1, "layers": [3]})",
        R"({"format": "millrace-quantization", "version": 1, "layers":
            [{"name": "a", "low": 1, "high": 2, "error": 0,
              "precision": "int8"}]})",
        R"({"format": "millrace-quantization", "version": 1, "layers":
            [{"name": "a", "low": -1, "high": 2, "error": 0,
              "precision": "int4"}]})"}) {
    EXPECT_FALSE(ReadQuantization(text).ok()) << text;
  }
}

// A residual block and a linear layer.
void MakeNet(GraphMaker& m) {
  const ValueId x = m.Input({1, 8, 9, 9});
  const Attrs same = {{"pads", Ints64{1, 1, 1, 1}}};
  ValueId y =
      m.Node("Relu", {m.Node("Conv", {x, m.Weight({16, 8, 3, 3})}, same)});
  ValueId z = m.Node("Conv", {y, m.Weight({16, 16, 3, 3})}, same);
  z = m.Node("Relu", {m.Node("Add", {z, y})});
  z = m.Node("Flatten", {m.Node("GlobalAveragePool", {z})});
  m.graph.AddOutput("y", m.Node("MatMul", {z, m.Weight({16, 10})}));
}

// The plan of a run by the table.
std::string QuantisedPlan(GraphMaker& m, const QuantizationTable& table) {
  InstanceOptions options;
  options.quantization = std::make_shared<const QuantizationTable>(table);
  auto context = CreateInstance(m.graph.Copy(), options);
  EXPECT_TRUE(context.ok());
  if (!context.ok()) return "";
  EXPECT_TRUE((*context)->Run(m.Inputs()).ok());
  return (*context)->PlanText();
}

TEST(Calibrate, EveryMethodGivesRangesThatCostLittle) {
  GraphMaker m;
  MakeNet(m);
  std::vector<std::vector<Tensor>> samples(1);
  samples[0].push_back(m.Inputs()[0].Share());
  for (const char* name : {"minmax", "percentile", "mse"}) {
    CalibrateOptions options;
    options.method = *RangeMethodOf(name);
    const auto table = Calibrate(m.graph, samples, options);
    ASSERT_TRUE(table.ok()) << table.status().message();
    ASSERT_EQ(table->layers.size(), 3u);
    EXPECT_EQ(table->layers[1].name, "Conv#2");
    for (const QuantizedLayer& layer : table->layers) {
      EXPECT_LE(layer.low, 0);
      EXPECT_GT(layer.high, 0);
      EXPECT_GT(layer.error, 0) << layer.name;
      EXPECT_LT(layer.error, 0.03) << layer.name;
    }
    const auto error = QuantizationError(m.graph, *table, samples, {});
    ASSERT_TRUE(error.ok());
    EXPECT_LT(*error, 0.05) << name;
    EXPECT_GT(*error, 0) << name;

    const std::string plan = QuantisedPlan(m, *table);
    EXPECT_NE(plan.find("Int8 Conv"), std::string::npos) << plan;
    EXPECT_NE(plan.find("+residual relu"), std::string::npos) << plan;
    EXPECT_NE(plan.find("Int8 Linear"), std::string::npos) << plan;
  }
}

TEST(Calibrate, TransposedConvolutionsAreLayers) {
  GraphMaker m;
  ValueId x = m.Node(
      "Relu",
      {m.Node("Conv", {m.Input({1, 8, 9, 9}), m.Weight({16, 8, 3, 3})})});
  x = m.Node("ConvTranspose", {x, m.Weight({16, 12, 2, 2}), m.Weight({12})},
             {{"strides", Ints64{2, 2}}});
  m.graph.AddOutput("y", m.Node("Conv", {x, m.Weight({4, 12, 1, 1})}));
  std::vector<std::vector<Tensor>> samples(1);
  samples[0].push_back(m.Inputs()[0].Share());
  const auto table = Calibrate(m.graph, samples, {});
  ASSERT_TRUE(table.ok()) << table.status().message();
  ASSERT_EQ(table->layers.size(), 3u);
  EXPECT_EQ(table->layers[1].name, "ConvTranspose");
  EXPECT_GT(table->layers[1].error, 0);
  EXPECT_LT(table->layers[1].error, 0.03);
  const auto error = QuantizationError(m.graph, *table, samples, {});
  ASSERT_TRUE(error.ok());
  EXPECT_LT(*error, 0.03);
  const std::string plan = QuantisedPlan(m, *table);
  EXPECT_NE(plan.find("Int8 ConvTranspose"), std::string::npos) << plan;
  EXPECT_EQ(plan.find("ConvTranspose 1 x 7x7x16 -> 14x14x12, kernel 2x2, 2 "
                      "phases +bias -> f32"),
            std::string::npos)
      << "the layer behind reads bytes:" << plan;
}

TEST(Calibrate, LayersThatCostTooMuchStayInFloats) {
  GraphMaker m;
  MakeNet(m);
  std::vector<std::vector<Tensor>> samples(1);
  samples[0].push_back(m.Inputs()[0].Share());
  CalibrateOptions options;
  options.max_error = 0;
  const auto table = Calibrate(m.graph, samples, options);
  ASSERT_TRUE(table.ok());
  for (const QuantizedLayer& layer : table->layers) {
    EXPECT_FALSE(layer.in_bytes);
  }
  const auto error = QuantizationError(m.graph, *table, samples, {});
  ASSERT_TRUE(error.ok());
  EXPECT_EQ(*error, 0);
}

TEST(InsertQuantization, ALayerThatIsNotThereIsAnErrorThatNamesIt) {
  GraphMaker m;
  MakeNet(m);
  InstanceOptions options;
  options.quantization = std::make_shared<const QuantizationTable>(
      QuantizationTable{"minmax", {{"nowhere", -1, 1, 0, true}}});
  const auto context = CreateInstance(m.graph.Copy(), options);
  ASSERT_FALSE(context.ok());
  EXPECT_NE(context.status().message().find("'nowhere'"), std::string::npos);
}

}  // namespace
}  // namespace millrace::models::graph
