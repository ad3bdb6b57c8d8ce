// Plans against the interpreter: the same graph, the same inputs, and results
// that differ by rounding alone.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/models/graph/graph_maker.h"

namespace millrace::models::graph {
namespace {

int NumLines(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

TEST(Plan, LinearTakesBiasActivationAndResidualWithIt) {
  GraphMaker m;
  const ValueId x = m.Input({3, 5, 24});
  const ValueId residual = m.Input({3, 5, 40});
  ValueId y = m.Node("MatMul", {x, m.Weight({24, 40})});
  y = m.Node("Add", {m.Weight({40}), y});
  y = m.Node("Gelu", {y});
  m.graph.AddOutput("y", m.Node("Add", {y, residual}));
  EXPECT_EQ(NumLines(m.ExpectSame()), 1);
}

TEST(Plan, GemmWithATransposedWeightIsALinearLayer) {
  GraphMaker m;
  const ValueId x = m.Input({7, 33});
  const ValueId y = m.Node("Gemm", {x, m.Weight({19, 33}), m.Weight({19})},
                           {{"transB", int64_t{1}}});
  m.graph.AddOutput("y", m.Node("Relu", {y}));
  EXPECT_EQ(NumLines(m.ExpectSame()), 1);
}

TEST(Plan, ALayerReadTwiceIsNotMergedAway) {
  GraphMaker m;
  const ValueId x = m.Input({4, 8});
  const ValueId y = m.Node("MatMul", {x, m.Weight({8, 8})});
  m.graph.AddOutput("y", m.Node("Relu", {y}));
  m.graph.AddOutput("z", m.Node("Sigmoid", {y}));
  m.ExpectSame();
}

TEST(Plan, ElementwiseTreesAreOneStep) {
  GraphMaker m;
  const ValueId x = m.Input({3, 5, 700});
  const ValueId y = m.Input({5, 1});
  ValueId t = m.Node("Mul", {m.Node("Sigmoid", {x}), x});
  t = m.Node("Sub", {t, m.Node("Tanh", {y})});
  t = m.Node("Div", {t, m.Number(3)});
  m.graph.AddOutput("y", m.Node("Relu", {m.Node("Add", {t, x})}));
  const std::string plan = m.ExpectSame();
  // The smaller operand's function is a step of its own.
  EXPECT_EQ(NumLines(plan), 2) << plan;
}

TEST(Plan, ATreeOfManyOperandsIsCut) {
  GraphMaker m;
  ValueId sum = m.Input({40});
  for (int i = 0; i < 9; ++i) sum = m.Node("Add", {m.Input({40}), sum});
  m.graph.AddOutput("y", sum);
  EXPECT_EQ(NumLines(m.ExpectSame()), 3);
}

TEST(Plan, TransposesOfEveryOrder) {
  std::vector<int64_t> perm = {0, 1, 2, 3};
  do {
    for (const Shape& shape : {Shape{2, 3, 70, 9}, Shape{1, 17, 1, 80}}) {
      GraphMaker m;
      m.graph.AddOutput(
          "y", m.Node("Transpose", {m.Input(shape)}, {{"perm", perm}}));
      m.ExpectSame();
    }
  } while (std::next_permutation(perm.begin(), perm.end()));
}

}  // namespace
}  // namespace millrace::models::graph
