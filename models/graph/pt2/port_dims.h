// The sizes of a program's inputs and outputs as those of a graph's ports. A
// symbol of the program is one of the graph from the first input that has it.
//
// One thread.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "models/graph/ir.h"
#include "models/graph/pt2/program.h"

namespace millrace::models::graph::pt2 {

class PortDims {
 public:
  // Both outlive it.
  PortDims(const Program& program, Graph* graph)
      : program_(program), graph_(*graph) {}

  // Adds to the graph the symbols that are new.
  std::vector<PortDim> OfInput(const TensorMeta& meta);
  // Sizes of a symbol that no input has are not known.
  std::vector<PortDim> OfOutput(const TensorMeta& meta) const;

 private:
  int32_t AddSymbol(const std::string& name);

  const Program& program_;
  Graph& graph_;
  std::unordered_map<std::string, int32_t> symbols_;  // of the graph, by name
};

}  // namespace millrace::models::graph::pt2
