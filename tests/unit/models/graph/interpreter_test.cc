#include "models/graph/interpreter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::models::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor Floats(const Shape& shape, std::vector<float> values) {
  return Tensor::From<float>(DType::kF32, shape, values);
}

TEST(Interpreter, BroadcastsOperandsOfDifferentRank) {
  Graph graph;
  const ValueId x = graph.AddInput("x", DType::kF32, {{2}, {1}, {2}});
  const ValueId w = graph.AddConstant("w", Floats({3, 1}, {10, 20, 30}));
  graph.AddOutput("y", graph.AddNode("sum", *FindOp("Add"), {x, w}));
  ASSERT_TRUE(graph.Validate().ok());

  std::vector<Tensor> inputs;
  inputs.push_back(Floats({2, 1, 2}, {1, 2, 3, 4}));
  const auto outputs = Interpret(graph, inputs);

  ASSERT_TRUE(outputs.ok()) << outputs.status().message();
  const Tensor& y = (*outputs)[0];
  EXPECT_EQ(y.shape(), (Shape{2, 3, 2}));
  EXPECT_THAT(std::span(y.data<float>(), 12),
              ElementsAre(11, 12, 21, 22, 31, 32, 13, 14, 23, 24, 33, 34));
}

TEST(Interpreter, NamesTheNodeThatFails) {
  Graph graph;
  const ValueId x = graph.AddInput("x", DType::kF32, {{2}});
  const ValueId y = graph.AddInput("y", DType::kF32, {{3}});
  graph.AddOutput("z", graph.AddNode("sum", *FindOp("Add"), {x, y}));

  std::vector<Tensor> inputs;
  inputs.push_back(Floats({2}, {1, 2}));
  inputs.push_back(Floats({3}, {1, 2, 3}));
  const auto outputs = Interpret(graph, inputs);

  EXPECT_EQ(outputs.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(outputs.status().message()),
              HasSubstr("node 'sum' (Add): shapes [2] and [3] cannot be"));
}

TEST(Graph, RefusesAValueReadBeforeItIsMade) {
  Graph graph;
  const ValueId later = graph.AddValue("later");
  graph.AddOutput("y", graph.AddNode("n", *FindOp("Add"), {later, later}));
  EXPECT_EQ(graph.Validate().code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace millrace::models::graph
