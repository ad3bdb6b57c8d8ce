// Graphs of 16-bit floats, computed in FP32.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <memory>

#include "models/graph/interpreter.h"
#include "models/graph/onnx_dtype.h"
#include "models/graph/op.h"
#include "models/graph/passes/passes.h"
#include "models/graph/row_tables.h"
#include "models/tensor/float16.h"
#include "tests/unit/models/graph/run_op.h"

namespace millrace::models::graph {
namespace {

using ::testing::ElementsAre;

Tensor Halves(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) bits.push_back(FloatToBFloat16(value));
  return Of<uint16_t>(DType::kBF16, {static_cast<int64_t>(values.size())},
                      bits);
}
// Of two dimensions, which makes it a weight.
Tensor Weight(const std::vector<float>& values) {
  return Halves(values).Reshaped({1, static_cast<int64_t>(values.size())});
}

// y = cast(x * w, BF16) + w
Graph Product() {
  Graph graph;
  const ValueId x = graph.AddInput("x", DType::kBF16, {{.size = 2}});
  const ValueId w = graph.AddConstant("w", Weight({3, 1.0078125f}));
  const ValueId y = graph.AddNode("y", *FindOp("Mul"), {x, w});
  const ValueId cast = graph.AddNode("c", *FindOp("Cast"), {y},
                                     {{"to", OnnxNumber(DType::kBF16)}});
  graph.AddOutput("y", graph.AddNode("z", *FindOp("Add"), {cast, w}));
  graph.outputs[0].dtype = DType::kBF16;
  return graph;
}

TEST(WidenHalves, OnlyPortsKeepTheirType) {
  Graph graph = Product();
  WidenHalves(graph);
  ASSERT_TRUE(graph.Validate().ok());
  EXPECT_EQ(graph.inputs[0].dtype, DType::kBF16);
  EXPECT_EQ(graph.outputs[0].dtype, DType::kBF16);
  for (const Value& value : graph.values) {
    if (value.constant == nullptr) continue;
    EXPECT_EQ(value.constant->dtype(), DType::kF32);
    EXPECT_TRUE(!value.type || value.type->dtype == DType::kF32);
  }
  std::vector<Tensor> inputs;
  inputs.push_back(Halves({2, 1.0078125f}));
  const auto y = Interpret(graph, inputs);
  ASSERT_TRUE(y.ok()) << y.status().ToString();
  ASSERT_EQ((*y)[0].dtype(), DType::kBF16);
  const auto* bits = (*y)[0].data<uint16_t>();
  // The product is not rounded on the way: 2.0235 lies nearer to 2.03125.
  EXPECT_EQ(BFloat16ToFloat(bits[0]), 9);
  EXPECT_EQ(BFloat16ToFloat(bits[1]), 2.03125f);
}

TEST(WidenHalves, AnInputThatIsAnOutputGoesThrough) {
  Graph graph;
  const ValueId x = graph.AddInput("x", DType::kBF16, {{.size = 1}});
  graph.AddConstant("w", Weight({1}));
  graph.AddOutput("y", x);
  graph.outputs[0].dtype = DType::kBF16;
  WidenHalves(graph);
  ASSERT_TRUE(graph.Validate().ok());
  std::vector<Tensor> inputs;
  inputs.push_back(Halves({3}));
  const auto y = Interpret(graph, inputs);
  ASSERT_TRUE(y.ok()) << y.status().ToString();
  EXPECT_EQ(BFloat16ToFloat((*y)[0].data<uint16_t>()[0]), 3);
}

TEST(WidenHalves, BodiesAreWidened) {
  Graph body;
  const ValueId one = body.AddConstant("one", Halves({1}));
  body.AddOutput("b", body.AddNode("b", *FindOp("Neg"), {one}));
  body.outputs[0].dtype = DType::kBF16;
  const auto shared = std::make_shared<const Graph>(std::move(body));
  Graph graph;
  graph.AddConstant("w", Weight({1}));
  const ValueId yes = graph.AddInput("yes", DType::kBool, {});
  const ValueId y = graph.AddNode("if", *FindOp("If"), {yes});
  graph.nodes[0].bodies = {shared, shared};
  graph.AddOutput("y", y);
  graph.outputs[0].dtype = DType::kBF16;
  WidenHalves(graph);
  const Graph& inside = *graph.nodes[0].bodies[0];
  EXPECT_EQ(inside.outputs[0].dtype, DType::kF32);
  EXPECT_EQ(inside.value(one).constant->dtype(), DType::kF32);
  EXPECT_EQ(shared->value(one).constant->dtype(), DType::kBF16);
}

TEST(WidenHalves, WeightsMayBeRoundedByTheGraph) {
  Graph graph;
  const ValueId x = graph.AddInput("x", DType::kF32, {});
  const ValueId w = graph.AddConstant("w", F({1, 1}, {2}));
  const auto half = [&](ValueId value) {
    return graph.AddNode("c", *FindOp("Cast"), {value},
                         {{"to", OnnxNumber(DType::kF16)}});
  };
  const ValueId y = half(x);
  Graph without = graph.Copy();
  without.AddOutput("y", y);
  WidenHalves(without);
  EXPECT_EQ(without.nodes[0].attrs.Int("to", 0), OnnxNumber(DType::kF16));
  half(w);
  WidenHalves(graph);
  EXPECT_EQ(graph.nodes[0].attrs.Int("to", 0), OnnxNumber(DType::kF32));
}

TEST(WidenHalves, WhereBitsAreSeenNothingChanges) {
  Graph graph = Product();
  graph.AddNode("bits", *FindOp("BitCast"), {graph.outputs[0].value},
                {{"to", OnnxNumber(DType::kI16)}});
  WidenHalves(graph);
  EXPECT_EQ(graph.nodes.size(), 4u);
  EXPECT_EQ(graph.value(1).constant->dtype(), DType::kBF16);
}

// A table in memory that nobody touches, [rows, 64]; the last row is ones.
Tensor LargeTable(int64_t rows) {
  const auto bytes = static_cast<size_t>(rows) * 128;
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EXPECT_NE(pages, MAP_FAILED);
  auto* values = static_cast<uint16_t*>(pages);
  std::fill_n(values + (rows - 1) * 64, 64, FloatToHalf(1));
  return Tensor::Borrow(DType::kF16, {rows, 64},
                        static_cast<const std::byte*>(pages),
                        std::shared_ptr<const void>(
                            pages, [=](const void*) { munmap(pages, bytes); }));
}

TEST(WidenHalves, OfLargeTablesOnlyTheRowsAreWidened) {
  const int64_t large = kLargeTableBytes / 128;
  for (const int64_t rows : {large, large - 1}) {
    Graph graph;
    const ValueId ids = graph.AddInput("ids", DType::kI64, {{.size = 2}});
    const ValueId table = graph.AddConstant("table", LargeTable(rows));
    const ValueId y =
        graph.AddNode("rows", *FindOp("Gather"), {table, ids}, {{"axis", 0}});
    graph.AddOutput("y", graph.AddNode("z", *FindOp("Neg"), {y}));
    WidenHalves(graph);
    ASSERT_TRUE(graph.Validate().ok());
    EXPECT_EQ(graph.value(table).constant->dtype(),
              rows == large ? DType::kF16 : DType::kF32);
    std::vector<Tensor> inputs;
    inputs.push_back(Tensor::Int64s(std::vector<int64_t>{0, rows - 1}));
    const auto got = Interpret(graph, inputs);
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    ASSERT_EQ((*got)[0].dtype(), DType::kF32);
    EXPECT_EQ((*got)[0].data<float>()[0], 0);
    EXPECT_EQ((*got)[0].data<float>()[127], -1);
  }
}

TEST(WidenHalves, ALargeTableThatIsAlsoMultipliedIsWidened) {
  Graph graph;
  const ValueId ids = graph.AddInput("ids", DType::kI64, {{.size = 2}});
  const ValueId table =
      graph.AddConstant("table", LargeTable(kLargeTableBytes / 128));
  graph.AddOutput("y", graph.AddNode("rows", *FindOp("Gather"), {table, ids}));
  graph.AddOutput("z", graph.AddNode("z", *FindOp("Neg"), {table}));
  WidenHalves(graph);
  EXPECT_EQ(graph.value(table).constant->dtype(), DType::kF32);
}

}  // namespace
}  // namespace millrace::models::graph
