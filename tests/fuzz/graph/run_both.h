// Runs an imported graph both ways on small inputs: by the interpreter with
// small limits and, where that succeeds, by a plan.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "models/graph/execution_context.h"
#include "models/graph/interpreter.h"

namespace millrace::models::graph {

// Inputs of the ports' sizes, 2 where they are open.
inline bool MakeInputs(const Graph& graph, std::vector<Tensor>& inputs) {
  for (const Port& port : graph.inputs) {
    std::vector<int64_t> sizes;
    for (const PortDim& dim : port.dims) {
      sizes.push_back(dim.size >= 0 ? dim.size : 2);
    }
    const auto shape = Shape::Checked(sizes);
    if (!shape.ok() || shape->num_elements() > 4096 || port.is_sequence) {
      return false;
    }
    inputs.push_back(Tensor::Make(port.dtype, *shape));
  }
  return true;
}

inline void RunBoth(Graph graph) {
  std::vector<Tensor> inputs;
  if (!MakeInputs(graph, inputs)) return;
  const auto outputs = Interpret(
      graph, inputs, {.max_tensor_bytes = 1 << 16, .max_loop_trips = 16});
  if (!outputs.ok()) return;
  auto context = CreateInstance(std::move(graph), {});
  if (context.ok()) (void)(*context)->Run(inputs);
}

}  // namespace millrace::models::graph
