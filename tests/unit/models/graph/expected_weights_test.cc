#include "models/graph/plan/expected_weights.h"

#include <gtest/gtest.h>

#include "tests/unit/models/graph/graph_maker.h"

namespace millrace::models::graph {
namespace {

TEST(ExpectedWeights, AreThoseOfLayersOnceAlsoBehindTransposes) {
  GraphMaker m;
  const ValueId x =
      m.graph.AddInput("x", DType::kF32, {{.size = 2}, {.size = 6}});
  const ValueId square = m.Weight({6, 6});
  const ValueId table = m.Weight({50, 6});
  const ValueId a = m.Node("MatMul", {x, square});
  const ValueId b = m.Node("MatMul", {a, m.Node("Transpose", {square})});
  const ValueId c =
      m.Node("MatMul", {b, m.Node("Transpose", {m.Weight({8, 6})})});
  m.graph.AddOutput("y", m.Node("Add", {c, m.Weight({8})}));
  m.graph.AddOutput("z", m.Node("Mul", {table, table}));
  EXPECT_EQ(FloatsOfLayers(m.graph), 6 * 6 + 8 * 6);
}

}  // namespace
}  // namespace millrace::models::graph
