#include "models/graph/sample_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::models::graph {
namespace {

using ::testing::HasSubstr;

Graph TwoInputs() {
  Graph graph;
  const int32_t n = graph.AddSymbol("n");
  graph.symbols[static_cast<size_t>(n)].min = 2;
  graph.symbols[static_cast<size_t>(n)].max = 64;
  graph.AddInput("x", DType::kF32, {{.symbol = n}, {.size = 3}});
  graph.AddInput("ids", DType::kI64, {{.symbol = n}, {}});
  return graph;
}

TEST(SampleInputs, FitThePortsAndAreTheSameForASeed) {
  const Graph graph = TwoInputs();
  const auto inputs =
      SampleInputs(graph.inputs, graph.symbols, {.sizes = {{"n", 5}}});
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  ASSERT_EQ(inputs->size(), 2);
  const Tensor& x = (*inputs)[0];
  EXPECT_EQ(x.shape(), Shape({5, 3}));
  const Tensor& ids = (*inputs)[1];
  EXPECT_EQ(ids.shape(), Shape({5, 1}));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(ids.data<int64_t>()[i], 1);
  float least = 1;
  float most = -1;
  for (int i = 0; i < 15; ++i) {
    least = std::min(least, x.data<float>()[i]);
    most = std::max(most, x.data<float>()[i]);
  }
  EXPECT_GE(least, -1);
  EXPECT_LT(most, 1);
  EXPECT_GT(most - least, 0.5);
  const auto again =
      SampleInputs(graph.inputs, graph.symbols, {.sizes = {{"n", 5}}});
  EXPECT_EQ(0, std::memcmp(x.bytes(), (*again)[0].bytes(), 60));
  const auto other = SampleInputs(graph.inputs, graph.symbols,
                                  {.sizes = {{"n", 5}}, .seed = 2});
  EXPECT_NE(0, std::memcmp(x.bytes(), (*other)[0].bytes(), 60));
}

TEST(SampleInputs, ASizeLeftOutIsTheLeast) {
  const Graph graph = TwoInputs();
  const auto inputs = SampleInputs(graph.inputs, graph.symbols, {});
  ASSERT_TRUE(inputs.ok());
  EXPECT_EQ((*inputs)[0].shape(), Shape({2, 3}));
}

TEST(SampleInputs, SaysWhatDoesNotFit) {
  const Graph graph = TwoInputs();
  EXPECT_THAT(SampleInputs(graph.inputs, graph.symbols, {.sizes = {{"m", 1}}})
                  .status()
                  .message(),
              HasSubstr("no dimension is called 'm'; there are 'n'"));
  EXPECT_THAT(SampleInputs(graph.inputs, graph.symbols, {.sizes = {{"n", 65}}})
                  .status()
                  .message(),
              HasSubstr("size 65 of 'n' is outside of its range, 2 to 64"));
  Graph large;
  large.AddInput("x", DType::kF32, {{.size = 1 << 20}, {.size = 1 << 20}});
  EXPECT_THAT(SampleInputs(large.inputs, {}, {}).status().message(),
              HasSubstr("choose smaller sizes"));
}

}  // namespace
}  // namespace millrace::models::graph
