#include "models/graph/sample_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "models/files/npz.h"

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

// As decoders with a cache are exported: keys of the past and the new ones.
TEST(SampleInputs, ADimensionThatIsNamedByASumIsTheSum) {
  Graph graph;
  const int32_t past = graph.AddSymbol("past");
  const int32_t all = graph.AddSymbol("past + new + 1");
  const int32_t next = graph.AddSymbol("new");
  const int32_t odd = graph.AddSymbol("past + other");
  graph.AddInput("a", DType::kF32, {{.size = 1}, {.symbol = past}});
  graph.AddInput("b", DType::kF32, {{.size = 1}, {.symbol = all}});
  graph.AddInput("c", DType::kF32, {{.size = 1}, {.symbol = next}});
  graph.AddInput("d", DType::kF32, {{.size = 1}, {.symbol = odd}});
  const auto inputs =
      SampleInputs(graph, {.sizes = {{"new", 4}}}, LeftOutSizes::kLikely);
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  EXPECT_EQ((*inputs)[0].shape(), Shape({1, 128}));
  EXPECT_EQ((*inputs)[1].shape(), Shape({1, 133}));
  EXPECT_EQ((*inputs)[2].shape(), Shape({1, 4}));
  EXPECT_EQ((*inputs)[3].shape(), Shape({1, 128}));
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

TEST(SampleInputs, ArraysThatNoInputIsCalledByAreLeftOut) {
  const std::string path = ::testing::TempDir() + "sample_inputs.npz";
  const auto write = [&](const std::string& first) {
    std::vector<NamedTensor> arrays;
    const std::vector<int64_t> values = {1, 2};
    const std::span<const int64_t> both = values;
    arrays.push_back({first, Tensor::Int64s(both.first(1))});
    arrays.push_back({"in1_x", Tensor::Int64s(both.last(1))});
    return WriteNpz(path, arrays);
  };
  Graph graph;
  graph.AddInput("x", DType::kI64, {{.size = 1}});
  ASSERT_TRUE(write("in0_mask").ok());
  const auto inputs = ReadInputs(path, graph.inputs);
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  ASSERT_EQ(inputs->size(), 1);
  EXPECT_EQ((*inputs)[0].data<int64_t>()[0], 2);
  graph.inputs[0].name = "y";
  EXPECT_THAT(std::string(ReadInputs(path, graph.inputs).status().message()),
              HasSubstr("the file has 2 arrays, the model has 1 inputs"));
}

TEST(SampleInputs, AFileThatIsNoArchiveSaysHowToMakeOne) {
  const std::string path = ::testing::TempDir() + "no_archive.txt";
  std::ofstream(path) << "hello";
  EXPECT_THAT(std::string(ReadInputs(path, {}).status().message()),
              HasSubstr("is no .npz file; numpy.savez"));
}

TEST(SampleInputs, ArraysOfFloatsAreRoundedForAPortOfBFloat16) {
  const std::string path = ::testing::TempDir() + "bf16_inputs.npz";
  std::vector<NamedTensor> arrays;
  arrays.push_back({"x", Tensor::Scalar(1.00390625f + 0.001f)});
  ASSERT_TRUE(WriteNpz(path, arrays).ok());
  Graph graph;
  graph.AddInput("x", DType::kBF16, {});
  const auto inputs = ReadInputs(path, graph.inputs);
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  ASSERT_EQ((*inputs)[0].dtype(), DType::kBF16);
  EXPECT_EQ((*inputs)[0].data<uint16_t>()[0], 0x3f81);  // 1 + 2^-7
}

}  // namespace
}  // namespace millrace::models::graph
