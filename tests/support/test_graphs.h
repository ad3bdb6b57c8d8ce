// Small graphs, made by hand.
#pragma once

#include <string>
#include <vector>

#include "models/graph/execution_context.h"
#include "models/graph/op.h"

namespace millrace::support {

// sum = a + b, twice = sum + sum; all FP32 [n, 2]
inline models::graph::Graph SumGraph() {
  using models::graph::FindOp;
  models::graph::Graph graph;
  const int32_t n = graph.AddSymbol("n");
  const std::vector<models::graph::PortDim> dims = {{.symbol = n}, {.size = 2}};
  const auto a = graph.AddInput("a", models::DType::kF32, dims);
  const auto b = graph.AddInput("b", models::DType::kF32, dims);
  const auto sum = graph.AddNode("sum", *FindOp("Add"), {a, b});
  graph.AddOutput("sum", sum);
  graph.AddOutput("twice", graph.AddNode("twice", *FindOp("Add"), {sum, sum}));
  for (models::graph::Port& port : graph.outputs) {
    port.rank_known = true;
    port.dims = dims;
  }
  return graph;
}

// One input of each type, "i_INT8" and so on, of shape [n]; the outputs,
// "o_INT8", are the same values.
inline models::graph::Graph EchoGraph() {
  models::graph::Graph graph;
  const int32_t n = graph.AddSymbol("n");
  for (int i = 0; i < models::kNumDTypes; ++i) {
    const auto dtype = static_cast<models::DType>(i);
    const std::string name(DTypeName(dtype));
    const auto value = graph.AddInput("i_" + name, dtype, {{.symbol = n}});
    graph.AddOutput("o_" + name, value);
    graph.outputs.back().dtype = dtype;
    graph.outputs.back().rank_known = true;
    graph.outputs.back().dims = {{.symbol = n}};
  }
  return graph;
}

}  // namespace millrace::support
