#include "models/graph/quantize/tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "models/graph/quantize/calibrate.h"
#include "models/graph/quantize/insert.h"
#include "tests/unit/models/graph/run_op.h"

namespace millrace::models::graph {
namespace {

TEST(Tables, RowsInBytesAreWithinHalfAStep) {
  const float inf = INFINITY;
  const Tensor table = F({3, 4}, {-1, 0, 0.5f, 2, 7, 7, 7, 7, 1, inf, 2, 3});
  const Tensor bytes = RowsInBytes(table);
  ASSERT_EQ(bytes.shape(), (Shape{3, 12}));
  const auto number = [&](int64_t row, int64_t at) {
    float x = 0;
    std::memcpy(&x, bytes.bytes() + row * 12 + at, sizeof x);
    return x;
  };
  for (int64_t row = 0; row < 2; ++row) {
    const float scale = number(row, 4);
    const float bias = number(row, 8);
    for (int64_t i = 0; i < 4; ++i) {
      const float got =
          static_cast<float>(bytes.data<uint8_t>()[row * 12 + i]) * scale +
          bias;
      EXPECT_NEAR(got, table.data<float>()[row * 4 + i], 3.0 / 255 / 2 + 1e-6);
    }
  }
  EXPECT_EQ(number(1, 4), 0.0f);
  EXPECT_TRUE(std::isnan(number(2, 4)));
}

// Two bags that read one table.
Graph Shared() {
  Graph graph;
  const int32_t n = graph.AddSymbol("n");
  const auto table = graph.AddConstant("t", F({2, 2}, {1, -3, 0.25f, 4}));
  for (const char* name : {"a", "b"}) {
    const auto values =
        graph.AddInput(name, DType::kI64, {{.symbol = n}, {.size = 1}});
    graph.AddOutput(
        name, graph.AddNode(name, *FindOp("EmbeddingBag"), {table, values}));
  }
  return graph;
}

TEST(Tables, EachBagIsALayerAndOneTableIsReducedOnce) {
  for (const bool in_bytes : {true, false}) {
    Graph graph = Shared();
    const auto layers = QuantizableLayers(graph);
    ASSERT_EQ(layers.size(), 2u);
    EXPECT_TRUE(layers[0].is_table);
    QuantizationTable table;
    for (const char* name : {"a", "b"}) {
      table.layers.push_back({name, 0, 0, 0, in_bytes, !in_bytes});
    }
    ASSERT_TRUE(InsertQuantization(graph, table).ok());
    const Tensor& a = *graph.value(graph.nodes[0].inputs[0]).constant;
    const Tensor& b = *graph.value(graph.nodes[1].inputs[0]).constant;
    EXPECT_EQ(a.dtype(), in_bytes ? DType::kU8 : DType::kF16);
    EXPECT_EQ(a.bytes(), b.bytes());
    auto context = CreateInstance(std::move(graph), {});
    ASSERT_TRUE(context.ok()) << context.status().ToString();
    std::vector<Tensor> inputs;
    for (int i = 0; i < 2; ++i) inputs.push_back(I64({1, 1}, {1}));
    const auto got = (*context)->Run(inputs);
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    EXPECT_THAT(Floats((*got)[0]),
                ::testing::Pointwise(::testing::FloatNear(0.01f),
                                     std::vector<float>{0.25f, 4}));
  }
}

TEST(Tables, TheFileSaysWhichTypeATableHas) {
  QuantizationTable table{"minmax", {{"bag", 0, 0, 0.1, false, true}}};
  const auto read = ReadQuantization(QuantizationJson(table));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_TRUE(read->layers[0].in_halves);
  EXPECT_FALSE(read->layers[0].in_bytes);
}

}  // namespace
}  // namespace millrace::models::graph
