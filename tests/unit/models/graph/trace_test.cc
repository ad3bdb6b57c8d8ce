// What a trace says of the steps: they are called as the nodes of the file are,
// and count the bytes that they move.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "models/graph/execution_context.h"
#include "tests/unit/models/graph/onnx_model.h"

namespace millrace::models::graph {
namespace {

using ::testing::UnorderedElementsAre;

std::vector<StepInfo> StepsOf(const OnnxModel& m, const Shape& shape,
                              DType dtype = DType::kF32) {
  auto graph = m.Import();
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  auto context = CreateInstance(*std::move(graph), {});
  EXPECT_TRUE(context.ok()) << context.status().message();
  std::vector<Tensor> inputs;
  inputs.push_back(Tensor::Make(dtype, shape));
  std::fill_n(inputs[0].bytes(), inputs[0].num_bytes(), std::byte{0});
  Trace trace;
  const auto outputs = (*context)->Run(inputs, {.trace = &trace});
  EXPECT_TRUE(outputs.ok()) << outputs.status().message();
  return trace.steps;
}

std::vector<std::string> NamesOf(const std::vector<StepInfo>& steps) {
  std::vector<std::string> names;
  for (const StepInfo& step : steps) names.push_back(step.name);
  return names;
}

// conv → relu → conv → add → relu become a step for each convolution.
TEST(Trace, AFusedStepIsCalledAsItsLayer) {
  OnnxModel m;
  m.Input("x", {1, 16, 4, 4});
  const std::vector<float> halves(16 * 16, 0.5f);
  m.Floats("v", {16, 16, 1, 1}, halves);
  m.Floats("w", {16, 16, 1, 1}, halves);
  m.Node("Conv", {"x", "v"}, {"a"})->set_name("stem/conv");
  m.Node("Relu", {"a"}, {"b"})->set_name("stem/relu");
  m.Node("Conv", {"b", "w"}, {"c"})->set_name("block/conv");
  m.Node("Add", {"c", "b"}, {"d"})->set_name("block/add");
  m.Node("Relu", {"d"}, {"y"})->set_name("block/relu");
  m.Output("y");
  const auto names = NamesOf(StepsOf(m, {1, 16, 4, 4}));
  const auto has = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  EXPECT_TRUE(has("stem/conv"));
  EXPECT_TRUE(has("block/conv"));
  EXPECT_FALSE(has("stem/relu"));
  EXPECT_FALSE(has("block/add"));
  EXPECT_FALSE(has("block/relu"));
}

// Of a sum of two products one takes the sum along; both keep their names.
TEST(Trace, ASumOfTwoLayersLeavesEachItsName) {
  OnnxModel m;
  m.Input("x", {4, 8});
  const std::vector<float> halves(8 * 8, 0.5f);
  m.Floats("v", {8, 8}, halves);
  m.Floats("w", {8, 8}, halves);
  m.Node("MatMul", {"x", "v"}, {"a"})->set_name("left");
  m.Node("MatMul", {"x", "w"}, {"b"})->set_name("right");
  m.Node("Add", {"a", "b"}, {"y"})->set_name("sum");
  m.Output("y");
  EXPECT_THAT(NamesOf(StepsOf(m, {4, 8})),
              UnorderedElementsAre("left", "right"));
}

// 2 rows of 8 floats of a table of 1000: read and written once, and the
// indices.
TEST(Trace, ALookUpReadsTheRowsThatItWrites) {
  OnnxModel m;
  m.Input("ids", {2}, onnx::TensorProto::INT64);
  m.Floats("table", {1000, 8}, std::vector<float>(8000, 1.0f));
  m.Node("Gather", {"table", "ids"}, {"y"});
  m.Output("y");
  const auto steps = StepsOf(m, {2}, DType::kI64);
  ASSERT_EQ(steps.size(), 1);
  EXPECT_EQ(steps[0].constant_bytes, 64);
  EXPECT_EQ(steps[0].bytes, 64 + 64 + 16);
}

}  // namespace
}  // namespace millrace::models::graph
