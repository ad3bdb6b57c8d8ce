// A graph while a pass changes it: the node that makes each value, its reader,
// edits that keep both right.
//
//   Editor editor(graph);
//   for (size_t i = 0; i < graph.nodes.size(); ++i) {
//     const Node* before = editor.Maker(graph.nodes[i].inputs[0]);
//     …
//     editor.Bypass(i, replacement);     // readers take the replacement
//   }
//   editor.Finish();                     // removes what is not read
//
// Nodes keep their places until Finish, so that an index stays good; a node is
// rewritten where its last operand is known to be made: at its own place.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "models/graph/ir.h"

namespace millrace::models::graph {

class Editor {
 public:
  explicit Editor(Graph& graph);

  // Null for inputs, constants and removed nodes.
  Node* Maker(ValueId id);
  // The maker when it is of that operator and `reader` alone reads this
  // result; null otherwise.
  Node* SoleMaker(ValueId id, std::string_view op);
  int32_t NumReaders(ValueId id) const { return uses_[Index(id)]; }
  const Tensor* Constant(ValueId id) const;
  // The one number that a constant holds in every element, if so.
  bool IsFilledWith(ValueId id, double number, double tolerance = 0) const;

  // All readers of `from`, outputs of the graph too, take `to` from now on.
  void Replace(ValueId from, ValueId to);
  // The node computes something else from other operands from now on. One that
  // takes over a layer (a product, a convolution, a pool) takes its name, too.
  void Rewrite(Node& node, const OpDef& op, std::vector<ValueId> inputs,
               Attrs attrs);
  ValueId AddConstant(std::string_view name, Tensor tensor);
  // A new node with one result of this type, to stand before `node`. Patterns
  // do not see it until Finish.
  ValueId InsertBefore(const Node& node, const OpDef& op,
                       std::vector<ValueId> inputs, Attrs attrs,
                       ValueType type);

  // Puts inserted nodes in their places and removes nodes of which none reads
  // any result.
  void Finish();

 private:
  static size_t Index(ValueId id) { return static_cast<size_t>(id); }
  // The layer that makes an operand of the node, quantised in between or not;
  // of several, the one whose weight is among the new operands. Null: none.
  const Node* LayerBefore(const Node& node, const std::vector<ValueId>& inputs);

  Graph& graph_;
  std::vector<int32_t> maker_;  // of each value: the node's place, or -1
  std::vector<int32_t> uses_;   // of each value, by nodes and outputs
  std::map<size_t, std::vector<Node>> inserted_;  // by the place they precede
};

}  // namespace millrace::models::graph
