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

// Values are twice as wide.
TEST(PlanAttention, ReadsPartsOfASplitInPlace) {
  GraphMaker m;
  const ValueId x = m.Input({2, 13, 24});
  const ValueId all = m.Node("MatMul", {x, m.Weight({24, 96})});
  std::vector<ValueId> parts;
  for (int i = 0; i < 3; ++i) parts.push_back(m.graph.AddValue("part"));
  m.graph.nodes.push_back({.op = FindOp("Split"),
                           .name = "split",
                           .inputs = {all, m.Ints({24, 24, 48})},
                           .outputs = parts,
                           .attrs = {{"axis", int64_t{-1}}},
                           .bodies = {}});
  for (ValueId& part : parts) part = Heads(m, part, 3);
  m.graph.AddOutput("y", Joined(m, m.Node("Attention", parts)));
  const std::string plan = m.ExpectSame();
  EXPECT_EQ(plan.find("Split"), std::string::npos) << plan;
  EXPECT_EQ(NumLines(plan), 2) << plan;
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

// Windows of images: a bias for each head, then a mask for each window, the
// stack cut another way for it.
TEST(PlanAttention, SeveralMasksOfStacksCutAnyhowAreRecognised) {
  for (const bool constant : {false, true}) {
    for (const int64_t batch : {1, 2}) {
      GraphMaker m;
      const int64_t windows = 3, heads = 2, t = 7, d = 8;
      const auto given = [&](const Shape& shape) {
        return constant ? m.Weight(shape) : m.Input(shape);
      };
      const ValueId q = m.Input({batch * windows, heads, t, d});
      const ValueId k = m.Input({batch * windows, heads, t, d});
      const ValueId v = m.Input({batch * windows, heads, t, d});
      const ValueId k_t =
          m.Node("Transpose", {k}, {{"perm", Ints{0, 1, 3, 2}}});
      ValueId s = m.Node("MatMul", {m.Node("Mul", {q, m.Number(0.3f)}), k_t});
      s = m.Node("Add", {s, given({1, heads, t, t})});
      s = m.Node("Reshape", {s, m.Ints({batch, windows, heads, t, t})});
      s = m.Node("Add", {given({1, windows, 1, t, t}), s});
      s = m.Node("Reshape", {s, m.Ints({-1, heads, t, t})});
      const ValueId p = m.Node("Softmax", {s}, {{"axis", int64_t{-1}}});
      m.graph.AddOutput("y", m.Node("MatMul", {p, v}));
      const std::string plan = m.ExpectSame();
      EXPECT_NE(plan.find("Attention"), std::string::npos) << plan;
      EXPECT_EQ(plan.find("Softmax"), std::string::npos) << plan;
      EXPECT_EQ(plan.find("Pointwise") == std::string::npos, constant) << plan;
    }
  }
}

// A mask of whole batches of which windows repeat has no place in a batch.
TEST(PlanAttention, AMaskThatRepeatsInsideIsAddedToScores) {
  GraphMaker m;
  const ValueId q = m.Input({2, 3, 2, 5, 8});
  const ValueId k_t = m.Input({2, 3, 2, 8, 5});
  const ValueId v = m.Input({2, 3, 2, 5, 8});
  const ValueId s =
      m.Node("Add", {m.Node("MatMul", {q, k_t}), m.Input({2, 1, 1, 1, 5})});
  const ValueId p = m.Node("Softmax", {s}, {{"axis", int64_t{-1}}});
  m.graph.AddOutput("y", m.Node("MatMul", {p, v}));
  EXPECT_NE(m.ExpectSame().find("Softmax"), std::string::npos);
}

// Stacks of three and of five axes, and a factor for each head.
TEST(PlanAttention, StacksOfAnyRankAreRecognised) {
  for (const bool wide : {false, true}) {
    GraphMaker m;
    const auto shape = [&](int64_t rows, int64_t columns) {
      return wide ? Shape{2, 3, 2, rows, columns} : Shape{6, rows, columns};
    };
    const ValueId q = m.Input(shape(5, 8));
    const ValueId k_t = m.Input(shape(8, 9));
    const ValueId v = m.Input(shape(9, 4));
    ValueId s = m.Node("MatMul", {q, k_t});
    if (wide) s = m.Node("Mul", {s, m.Weight({2, 1, 1})});
    s = m.Node("Add",
               {m.Input(wide ? Shape{1, 1, 2, 5, 9} : Shape{1, 5, 9}), s});
    const ValueId p = m.Node("Softmax", {s}, {{"axis", int64_t{-1}}});
    m.graph.AddOutput("y", m.Node("MatMul", {p, v}));
    const std::string plan = m.ExpectSame();
    EXPECT_NE(plan.find("Attention 6 x "), std::string::npos) << plan;
    EXPECT_EQ(plan.find("Softmax"), std::string::npos) << plan;
  }
}

// A factor behind a mask multiplies the mask, too.
TEST(PlanAttention, AFactorBehindAMaskIsNone) {
  GraphMaker m;
  const ValueId q = m.Input({2, 3, 5, 8});
  const ValueId k_t = m.Input({2, 3, 8, 5});
  const ValueId v = m.Input({2, 3, 5, 8});
  ValueId s = m.Node("Add", {m.Node("MatMul", {q, k_t}), m.Input({5, 5})});
  s = m.Node("Mul", {s, m.Weight({3, 1, 1})});
  const ValueId p = m.Node("Softmax", {s}, {{"axis", int64_t{-1}}});
  m.graph.AddOutput("y", m.Node("MatMul", {p, v}));
  EXPECT_NE(m.ExpectSame().find("Softmax"), std::string::npos);
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
