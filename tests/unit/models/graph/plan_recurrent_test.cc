// LSTM and GRU on the dense kernels against their plain functions.
#include <gtest/gtest.h>

#include "tests/unit/models/graph/graph_maker.h"

namespace millrace::models::graph {
namespace {

struct Case {
  std::string op;
  int64_t batch;
  std::string direction;
  bool batch_first = false;
  bool states = true;
  bool bias = true;
};

class PlanRecurrent : public testing::TestWithParam<Case> {};

// All three results, so that states are compared, too.
void AddCell(GraphMaker& m, const Case& c, Attrs attrs = {}) {
  constexpr int64_t kSeq = 7;
  constexpr int64_t kInput = 5;
  constexpr int64_t kHidden = 19;
  const bool lstm = c.op == "LSTM";
  const int64_t d = c.direction == "bidirectional" ? 2 : 1;
  const int64_t gates = (lstm ? 4 : 3) * kHidden;
  const Shape state =
      c.batch_first ? Shape{c.batch, d, kHidden} : Shape{d, c.batch, kHidden};
  std::vector<ValueId> inputs = {
      m.Input(c.batch_first ? Shape{c.batch, kSeq, kInput}
                            : Shape{kSeq, c.batch, kInput}),
      m.Weight({d, gates, kInput}), m.Weight({d, gates, kHidden}),
      c.bias ? m.Weight({d, 2 * gates}) : kNoValue};
  if (c.states) {
    inputs.push_back(kNoValue);
    inputs.push_back(m.Input(state));
    if (lstm) inputs.push_back(m.Input(state));
  }
  attrs.Set("direction", c.direction);
  attrs.Set("hidden_size", kHidden);
  attrs.Set("layout", int64_t{c.batch_first});
  if (!lstm && !attrs.Has("linear_before_reset")) {
    attrs.Set("linear_before_reset", int64_t{1});
  }
  m.Node(c.op, inputs, attrs);
  Node& node = m.graph.nodes.back();
  for (int i = 1; i < (lstm ? 3 : 2); ++i) {
    node.outputs.push_back(m.graph.AddValue("state"));
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    m.graph.AddOutput("y" + std::to_string(i), m.graph.nodes.back().outputs[i]);
  }
}

TEST_P(PlanRecurrent, GivesWhatThePlainFunctionGives) {
  GraphMaker m;
  AddCell(m, GetParam());
  const std::string plan = m.ExpectSame();
  EXPECT_NE(plan.find(GetParam().op + " 7 steps of "), plan.npos) << plan;
}

INSTANTIATE_TEST_SUITE_P(
    Cells, PlanRecurrent,
    testing::Values(Case{"LSTM", 1, "forward"}, Case{"LSTM", 3, "reverse"},
                    Case{"LSTM", 2, "bidirectional", true},
                    // More rows than steps, and than go together.
                    Case{"LSTM", 41, "bidirectional", false, false},
                    Case{"LSTM", 9, "forward", false, true, false},
                    Case{"GRU", 1, "bidirectional"}, Case{"GRU", 3, "reverse"},
                    Case{"GRU", 2, "forward", true},
                    Case{"GRU", 41, "bidirectional", true, false},
                    Case{"GRU", 9, "forward", false, true, false}));

TEST(PlanRecurrentCells, WhatTheKernelsDoNotComputeStaysWithThePlainFunction) {
  for (const Attrs& attrs :
       {Attrs{{"clip", 0.5}}, Attrs{{"linear_before_reset", int64_t{0}}},
        Attrs{{"activations", std::vector<std::string>{"Sigmoid", "Relu"}}}}) {
    GraphMaker m;
    AddCell(m, {"GRU", 2, "forward"}, attrs);
    const std::string plan = m.ExpectSame();
    EXPECT_EQ(plan.find("steps of"), plan.npos) << plan;
  }
}

}  // namespace
}  // namespace millrace::models::graph
