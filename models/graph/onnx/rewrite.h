// Turning one node of the file into nodes of ours: older forms into the newest,
// and operators we have not into those we have.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/status.h"
#include "models/graph/ir.h"

namespace millrace::models::graph {

// What a rewrite reads and how it writes. Emitting goes on after a failure; the
// first is returned at the end.
class NodeWriter {
 public:
  std::string op;     // without domain
  std::string name;   // for messages
  int64_t opset = 0;  // of the operator's domain
  std::vector<ValueId> inputs;
  std::vector<bool> wanted;  // which outputs may be read
  Attrs attrs;
  // A tensor attribute; NOT_FOUND when it is left out.
  std::function<StatusOr<Tensor>(std::string_view)> tensor_attr;
  // Rank of a value as far as the file says, or -1.
  std::function<int(ValueId)> rank_of;
  // Says the rank of an output, which the file may not.
  std::function<void(size_t output, int rank)> tell_rank;
  // Before a constant is made that is larger than what the file holds of it.
  // RESOURCE_EXHAUSTED: there are too many weights.
  std::function<Status(int64_t bytes)> charge;

  explicit NodeWriter(Graph* graph) : graph_(graph) {}

  // The operand, or kNoValue.
  ValueId in(size_t i) const {
    return i < inputs.size() ? inputs[i] : kNoValue;
  }
  // Puts an operand at its place, with those before it left out.
  void SetInput(size_t i, ValueId value);
  bool Wants(size_t i) const { return i < wanted.size() && wanted[i]; }

  ValueId Constant(Tensor tensor);
  ValueId Ints(std::vector<int64_t> values);  // of rank 1
  ValueId Int(int64_t value);                 // of rank 0
  ValueId Float(float value);                 // of rank 0
  // FP32 cast to the type of `like`.
  ValueId FloatLike(float value, ValueId like);
  // A node of one output.
  ValueId Emit(std::string_view op_name, std::vector<ValueId> operands,
               Attrs node_attrs = {});
  // A node of as many outputs as `wants` says, kNoValue for those that are
  // not wanted.
  std::vector<ValueId> EmitAll(std::string_view op_name,
                               std::vector<ValueId> operands,
                               const std::vector<bool>& wants,
                               Attrs node_attrs = {});
  // The node as it now stands, with all of its outputs.
  std::vector<ValueId> EmitSelf();
  // The constant's tensor, or null.
  const Tensor* ConstantOf(ValueId value) const;

  Graph& graph() { return *graph_; }
  const Status& status() const { return status_; }

 private:
  const OpDef* Find(std::string_view op_name);

  Graph* graph_;
  Status status_;
};

// The values that the node's outputs become, kNoValue for those that are
// not read. UNIMPLEMENTED: say so in the report.
using Rewrite = StatusOr<std::vector<ValueId>> (*)(NodeWriter& node);
using RewriteRow = std::pair<std::string_view, Rewrite>;

// Null: there is no row of that name.
Rewrite FindRow(std::span<const RewriteRow> rows, std::string_view op);

// Null: the node stays as it is.
Rewrite FindUpgrade(std::string_view op);    // upgrade.cc: older forms
Rewrite FindExpansion(std::string_view op);  // expand.cc: from others of ours
// Of ONNX Runtime's own domain, com.microsoft; null: there is no such operator.
Rewrite FindMicrosoft(std::string_view op);           // microsoft.cc
Rewrite FindMicrosoftAttention(std::string_view op);  // microsoft_attention.cc
Rewrite FindMicrosoftBlocks(std::string_view op);     // microsoft_blocks.cc
Rewrite FindMicrosoftBytes(std::string_view op);      // microsoft_bytes.cc
// Of ai.onnx.ml; null: there is no such operator.
Rewrite FindTabular(std::string_view op);        // tabular.cc
Rewrite FindTabularTrees(std::string_view op);   // tabular_trees.cc
Rewrite FindTabularScores(std::string_view op);  // tabular_scores.cc

}  // namespace millrace::models::graph
