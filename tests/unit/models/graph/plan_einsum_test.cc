// Einsums of two operands, planned: the plain function is the oracle.
#include <gtest/gtest.h>

#include "tests/unit/models/graph/graph_maker.h"

namespace millrace::models::graph {
namespace {

Attrs Is(const std::string& equation) { return {{"equation", equation}}; }

struct EinsumCase {
  std::string equation;
  Shape a;
  Shape b;
};

TEST(PlanEinsum, OfTwoOperandsIsAProduct) {
  for (const EinsumCase& c : std::vector<EinsumCase>{
           {"ij,jk->ik", {5, 7}, {7, 4}},
           {"ij,jk->ki", {5, 7}, {7, 4}},
           {"bhid,bhjd->bhij", {2, 3, 5, 8}, {2, 3, 6, 8}},
           {"...id,...jd->...ij", {2, 3, 5, 8}, {2, 3, 6, 8}},
           {"bqhd,bkhd->bhqk", {2, 5, 3, 8}, {2, 6, 3, 8}},
           {"bhqk,bkhd->bqhd", {2, 3, 5, 6}, {2, 6, 3, 8}},
           {"ibnd,jbnd->bnij", {5, 2, 3, 8}, {6, 2, 3, 8}},
           {"abc,cd->dab", {2, 3, 4}, {4, 5}},
           {"ij,j->i", {5, 7}, {7}},
           {"j,ij->i", {7}, {5, 7}},
           {"bi,bi->b", {5, 7}, {5, 7}},
           {"i,j->ij", {5}, {7}},
           {"bik,bjk->ibj", {2, 3, 4}, {2, 5, 4}},
           {"ijkl,klm->ijm", {2, 3, 4, 5}, {4, 5, 6}}}) {
    GraphMaker m;
    const ValueId a = m.Input(c.a);
    const ValueId b = m.Input(c.b);
    m.graph.AddOutput("y", m.Node("Einsum", {a, b}, Is(c.equation)));
    const std::string plan = m.ExpectSame();
    EXPECT_NE(plan.find("MatMul"), std::string::npos) << c.equation << plan;
    EXPECT_EQ(plan.find("Einsum"), std::string::npos) << c.equation << plan;
  }
}

// Sums of one operand alone, diagonals, sizes that repeat, products of
// elements.
TEST(PlanEinsum, OthersAreLeftAlone) {
  for (const EinsumCase& c :
       std::vector<EinsumCase>{{"ij,jk->k", {5, 7}, {7, 4}},
                               {"iij,jk->ik", {5, 5, 7}, {7, 4}},
                               {"ij,jk->ik", {5, 1}, {7, 4}},
                               {"ij,ij->ij", {5, 7}, {5, 7}}}) {
    GraphMaker m;
    const ValueId a = m.Input(c.a);
    const ValueId b = m.Input(c.b);
    m.graph.AddOutput("y", m.Node("Einsum", {a, b}, Is(c.equation)));
    const std::string plan = m.ExpectSame();
    EXPECT_NE(plan.find("Einsum"), std::string::npos) << c.equation << plan;
  }
}

TEST(PlanEinsum, OfAConstantMatrixIsALayer) {
  for (const EinsumCase& c :
       std::vector<EinsumCase>{{"btd,dhk->bthk", {2, 5, 8}, {8, 3, 4}},
                               {"bthk,hkd->btd", {2, 5, 3, 4}, {3, 4, 8}},
                               {"btd,hkd->bthk", {2, 5, 8}, {3, 4, 8}}}) {
    GraphMaker m;
    const ValueId a = m.Input(c.a);
    m.graph.AddOutput("y",
                      m.Node("Einsum", {a, m.Weight(c.b)}, Is(c.equation)));
    const std::string plan = m.ExpectSame();
    EXPECT_EQ(plan.find("Linear 10 x "), 0u) << c.equation << plan;
  }
}

// Queries and keys as einsums: heads inside rows of tokens.
TEST(PlanEinsum, SpelledOutAttentionIsRecognised) {
  GraphMaker m;
  const ValueId q = m.Input({2, 5, 3, 8});
  const ValueId k = m.Input({2, 6, 3, 8});
  const ValueId v = m.Input({2, 6, 3, 8});
  const ValueId s = m.Node("Einsum", {q, k}, Is("bqhd,bkhd->bhqk"));
  const ValueId p = m.Node("Softmax", {m.Node("Mul", {s, m.Number(0.3f)})},
                           {{"axis", int64_t{-1}}});
  m.graph.AddOutput("y", m.Node("Einsum", {p, v}, Is("bhqk,bkhd->bqhd")));
  const std::string plan = m.ExpectSame();
  EXPECT_EQ(plan.find("Attention 2 x 3 heads x 5 of 6 keys x 8"), 0u) << plan;
  EXPECT_EQ(std::count(plan.begin(), plan.end(), '\n'), 1) << plan;
}

}  // namespace
}  // namespace millrace::models::graph
