// Attention, planned: as an operator and spelled out.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/models/graph/graph_maker.h"

namespace millrace::models::graph {
namespace {

using Ints = std::vector<int64_t>;

int NumLines(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

// [b, t, heads * d] as [b, heads, t, d].
ValueId Heads(GraphMaker& m, ValueId x, int64_t heads) {
  x = m.Node("Reshape", {x, m.Ints({0, 0, heads, -1})});
  return m.Node("Transpose", {x}, {{"perm", Ints{0, 2, 1, 3}}});
}

ValueId Joined(GraphMaker& m, ValueId x) {
  x = m.Node("Transpose", {x}, {{"perm", Ints{0, 2, 1, 3}}});
  return m.Node("Reshape", {x, m.Ints({0, 0, -1})});
}

TEST(PlanAttention, ReadsHeadsWhereProjectionsLeaveThem) {
  GraphMaker m;
  const ValueId x = m.Input({2, 21, 24});
  const auto projected = [&] {
    return Heads(m, m.Node("MatMul", {x, m.Weight({24, 24})}), 3);
  };
  const ValueId q = projected();
  const ValueId k = projected();
  const ValueId y =
      m.Node("Attention", {q, k, projected()}, {{"is_causal", int64_t{1}}});
  m.graph.AddOutput("y", Joined(m, y));
  const std::string plan = m.ExpectSame();
  EXPECT_EQ(plan.find("Transpose"), std::string::npos) << plan;
  EXPECT_NE(plan.find("Attention"), std::string::npos) << plan;
}

// Queries, keys and values of one layer, as a Split or by an axis of three.
TEST(PlanAttention, ReadsHeadsOfOneLayerInPlace) {
  for (const bool own_axis : {false, true}) {
    GraphMaker m;
    const ValueId x = m.Input({2, 13, 24});
    const ValueId all = m.Node("MatMul", {x, m.Weight({24, 72})});
    const ValueId five = m.Node("Reshape", {all, m.Ints({0, 0, 3, 3, 8})});
    const auto part = [&](int64_t i) {
      const int64_t each = own_axis ? 1 : 24;
      const ValueId slice =
          m.Node("Slice", {own_axis ? five : all, m.Ints({i * each}),
                           m.Ints({(i + 1) * each}), m.Ints({2}), m.Ints({1})});
      return Heads(m, m.Node("Reshape", {slice, m.Ints({0, 0, -1})}), 3);
    };
    const ValueId q = part(0);
    const ValueId k = part(1);
    m.graph.AddOutput("y", Joined(m, m.Node("Attention", {q, k, part(2)})));
    const std::string plan = m.ExpectSame();
    EXPECT_EQ(plan.find("Slice"), std::string::npos) << plan;
    EXPECT_EQ(NumLines(plan), 2) << plan;
  }
}

// Tokens before the batch, as torch's own attention has them: one layer's
// result as [t, b, 3, h * d], or three layers'.
TEST(PlanAttention, ReadsAndWritesTokensBeforeTheBatchInPlace) {
  for (const bool one_layer : {false, true}) {
    GraphMaker m;
    const int64_t b = 2, t = 13, h = 3, d = 8;
    const ValueId x = m.Input({t, b, h * d});
    ValueId all = m.Node("MatMul", {x, m.Weight({h * d, 3 * h * d})});
    all = m.Node("Reshape", {all, m.Ints({t, b, 3, h * d})});
    const auto part = [&](int64_t i) {
      ValueId y = one_layer
                      ? m.Node("Slice", {all, m.Ints({i}), m.Ints({i + 1}),
                                         m.Ints({2}), m.Ints({1})})
                      : m.Node("MatMul", {x, m.Weight({h * d, h * d})});
      y = m.Node("Reshape", {y, m.Ints({t, b * h, d})});
      y = m.Node("Transpose", {y}, {{"perm", Ints{1, 0, 2}}});
      return m.Node("Reshape", {y, m.Ints({b, h, t, d})});
    };
    const ValueId q = part(0);
    const ValueId k = part(1);
    ValueId y = m.Node("Attention", {q, k, part(2)});
    y = m.Node("Transpose", {y}, {{"perm", Ints{2, 0, 1, 3}}});
    y = m.Node("Reshape", {y, m.Ints({t * b, h * d})});
    m.graph.AddOutput("y", m.Node("MatMul", {y, m.Weight({h * d, 10})}));
    const std::string plan = m.ExpectSame();
    EXPECT_EQ(plan.find("Slice"), std::string::npos) << plan;
    EXPECT_EQ(plan.find("Transpose"), std::string::npos) << plan;
  }
}

// A slice of the tokens leaves a way between those of a batch that is no one
// token's: it is copied.
TEST(PlanAttention, CopiesHeadsOfSomeTokens) {
  GraphMaker m;
  const ValueId x = m.Input({2, 13, 24});
  const auto part = [&](int64_t from, int64_t to) {
    const ValueId slice = m.Node(
        "Slice", {x, m.Ints({from}), m.Ints({to}), m.Ints({1}), m.Ints({1})});
    return Heads(m, slice, 3);
  };
  const ValueId q = part(0, 5);
  const ValueId k = part(1, 9);
  m.graph.AddOutput("y", Joined(m, m.Node("Attention", {q, k, part(2, 10)})));
  const std::string plan = m.ExpectSame();
  EXPECT_NE(plan.find("Slice"), std::string::npos) << plan;
}

TEST(PlanAttention, AMaskIsBroadcastOverHeadsAndRows) {
  GraphMaker m;
  const ValueId q = m.Input({2, 3, 7, 16});
  const ValueId k = m.Input({2, 3, 600, 16});
  const ValueId v = m.Input({2, 3, 600, 8});
  const ValueId mask = m.Input({2, 1, 1, 600});
  m.graph.AddOutput("y", m.Node("Attention", {q, k, v, mask}));
  m.ExpectSame();
}

TEST(PlanAttention, SpelledOutAttentionIsRecognised) {
  GraphMaker m;
  const ValueId q = m.Input({2, 4, 9, 8});
  const ValueId k = m.Input({2, 4, 11, 8});
  const ValueId v = m.Input({2, 4, 11, 8});
  const ValueId mask = m.Input({2, 1, 9, 11});
  const ValueId k_t = m.Node("Transpose", {k}, {{"perm", Ints{0, 1, 3, 2}}});
  ValueId s = m.Node("MatMul", {m.Node("Mul", {q, m.Number(0.6f)}),
                                m.Node("Mul", {k_t, m.Number(0.5f)})});
  s = m.Node("Add", {s, mask});
  ValueId p = m.Node("Softmax", {s}, {{"axis", int64_t{-1}}});
  p = m.Node("Where", {m.Node("IsNaN", {p}), m.Number(0), p});
  m.graph.AddOutput("y", m.Node("MatMul", {p, v}));
  const std::string plan = m.ExpectSame();
  EXPECT_NE(plan.find("Attention"), std::string::npos) << plan;
  EXPECT_EQ(plan.find("Softmax"), std::string::npos) << plan;
}

TEST(PlanRows, NormsAndSoftmaxRunOnTheDenseKernels) {
  GraphMaker m;
  const ValueId x = m.Input({3, 17, 130});
  ValueId y =
      m.Node("LayerNormalization", {x, m.Weight({130}), m.Weight({130})},
             {{"axis", int64_t{-1}}, {"epsilon", 1e-3}});
  m.graph.AddOutput("y", m.Node("Softmax", {y}, {{"axis", int64_t{-1}}}));
  m.ExpectSame();
}

}  // namespace
}  // namespace millrace::models::graph
