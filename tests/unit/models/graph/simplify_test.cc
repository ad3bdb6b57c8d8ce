// Graphs as exporters spell them out: the plan has what they mean, and gives
// what the interpreter gives.
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/models/graph/graph_maker.h"

namespace millrace::models::graph {
namespace {

using Ints = std::vector<int64_t>;

bool Has(const std::string& plan, std::string_view word) {
  return plan.find(word) != std::string::npos;
}

TEST(Simplify, AWeightExpandedForEachMatrixIsALinearLayer) {
  GraphMaker m;
  const ValueId x = m.Input({5, 1, 24});
  const ValueId w =
      m.Node("Expand", {m.Weight({24, 300}), m.Ints({5, 24, 300})});
  m.graph.AddOutput("y", m.Node("MatMul", {x, w}));
  const std::string plan = m.ExpectSame();
  EXPECT_TRUE(Has(plan, "Linear")) << plan;
  EXPECT_FALSE(Has(plan, "Expand")) << plan;
}

TEST(Simplify, AnExpandThatGivesTheResultItsSizeStays) {
  GraphMaker m;
  const ValueId x = m.Input({1, 3, 4});
  const ValueId y = m.Input({4, 2});
  const ValueId wide = m.Node("Expand", {x, m.Ints({6, 3, 4})});
  m.graph.AddOutput("y", m.Node("MatMul", {wide, y}));
  m.graph.AddOutput("z", m.Node("Add", {wide, m.Number(1)}));
  m.ExpectSame();
}

TEST(Simplify, SpelledOutGeluIsOneFunction) {
  for (const float half : {0.5f, 0.25f}) {
    for (const bool divides : {true, false}) {
      GraphMaker m;
      const ValueId x = m.Node("MatMul", {m.Input({5, 8}), m.Weight({8, 24})});
      const ValueId scaled = divides
                                 ? m.Node("Div", {x, m.Number(1.4142135f)})
                                 : m.Node("Mul", {m.Number(0.70710678f), x});
      const ValueId bell =
          m.Node("Add", {m.Node("Erf", {scaled}), m.Number(1)});
      const ValueId y =
          divides ? m.Node("Mul", {m.Node("Mul", {x, bell}), m.Number(half)})
                  : m.Node("Mul", {m.Node("Mul", {m.Number(half), x}), bell});
      m.graph.AddOutput("y", y);
      const std::string plan = m.ExpectSame();
      EXPECT_EQ(Has(plan, "Linear 5 x 8 -> 24 gelu"), half == 0.5f) << plan;
    }
  }
}

// Scores of [batch · heads] matrices, a guard by Any, as run_decompositions()
// of PyTorch leaves them.
TEST(Simplify, DecomposedAttentionIsAttention) {
  GraphMaker m;
  const auto joined = [&](ValueId x, const Ints& sizes) {
    x = m.Node("Expand", {x, m.Ints(sizes)});
    return m.Node("Reshape", {x, m.Ints({-1, sizes[2], sizes[3]})});
  };
  const ValueId q = m.Input({2, 3, 7, 16});
  const ValueId k_t = m.Node("Transpose", {m.Input({2, 3, 9, 16})},
                             {{"perm", Ints{0, 1, 3, 2}}});
  const ValueId v = m.Input({2, 3, 9, 16});
  const ValueId mask = m.Input({2, 1, 7, 9});
  ValueId s =
      m.Node("MatMul", {joined(q, {2, 3, 7, 16}), joined(k_t, {2, 3, 16, 9})});
  s = m.Node("Reshape", {s, m.Ints({2, 3, 7, 9})});
  s = m.Node("Add", {s, mask});
  ValueId p = m.Node("Softmax", {s}, {{"axis", int64_t{-1}}});
  const ValueId low = m.Number(-std::numeric_limits<float>::infinity());
  const auto cast = [&](ValueId x, DType to) {
    return m.Node("Cast", {x}, {{"to", int64_t{to == DType::kBool ? 9 : 2}}});
  };
  const ValueId sees = m.Node("Not", {m.Node("Equal", {s, low})});
  const ValueId any =
      cast(m.Node("ReduceMax", {cast(sees, DType::kU8), m.Ints({-1})}),
           DType::kBool);
  p = m.Node("Where", {m.Node("Not", {any}), m.Number(0), p});
  ValueId y =
      m.Node("MatMul", {joined(p, {2, 3, 7, 9}), joined(v, {2, 3, 9, 16})});
  m.graph.AddOutput("y", m.Node("Reshape", {y, m.Ints({2, 3, 7, 16})}));
  const std::string plan = m.ExpectSame();
  EXPECT_TRUE(Has(plan, "Attention")) << plan;
  EXPECT_FALSE(Has(plan, "Softmax")) << plan;
}

// The key is turned and the scores are normalised while heads are joined.
TEST(Simplify, AttentionOfJoinedHeadsIsAttention) {
  GraphMaker m;
  const auto joined = [&](const Shape& shape) {
    return m.Node("Reshape",
                  {m.Input(shape), m.Ints({-1, shape[2], shape[3]})});
  };
  const ValueId q = joined({2, 3, 7, 16});
  const ValueId k = joined({2, 3, 9, 16});
  const ValueId v = joined({2, 3, 9, 16});
  const ValueId s = m.Node(
      "MatMul", {q, m.Node("Transpose", {k}, {{"perm", Ints{0, 2, 1}}})});
  const ValueId p = m.Node("Softmax", {s}, {{"axis", int64_t{-1}}});
  m.graph.AddOutput("y", m.Node("MatMul", {p, v}));
  const std::string plan = m.ExpectSame();
  EXPECT_TRUE(Has(plan, "Attention")) << plan;
}

TEST(Simplify, ProductsOfBatchesJoinedOtherwiseStay) {
  GraphMaker m;
  const ValueId a =
      m.Node("Reshape", {m.Input({2, 3, 4, 5}), m.Ints({6, 4, 5})});
  const ValueId b =
      m.Node("Reshape", {m.Input({3, 2, 5, 4}), m.Ints({6, 5, 4})});
  m.graph.AddOutput("y", m.Node("MatMul", {a, b}));
  m.ExpectSame();
}

}  // namespace
}  // namespace millrace::models::graph
