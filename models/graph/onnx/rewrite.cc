#include "models/graph/onnx/rewrite.h"

#include <algorithm>

#include "models/graph/op.h"

namespace millrace::models::graph {

void NodeWriter::SetInput(size_t i, ValueId value) {
  if (inputs.size() <= i) inputs.resize(i + 1, kNoValue);
  inputs[i] = value;
}

ValueId NodeWriter::Constant(Tensor tensor) {
  return graph_->AddConstant(name, std::move(tensor));
}

ValueId NodeWriter::Ints(std::vector<int64_t> values) {
  return Constant(Tensor::Int64s(values));
}

ValueId NodeWriter::Int(int64_t value) {
  return Constant(Tensor::Scalar(value));
}

ValueId NodeWriter::Float(float value) {
  return Constant(Tensor::Scalar(value));
}

ValueId NodeWriter::FloatLike(float value, ValueId like) {
  return Emit("CastLike", {Float(value), like});
}

const OpDef* NodeWriter::Find(std::string_view op_name) {
  const OpDef* found = FindOp(op_name);
  if (found == nullptr && status_.ok()) {
    status_ = Unimplemented(op_name == op ? "no such operator"
                                          : "it needs the operator " +
                                                std::string(op_name) +
                                                ", which is not there");
  }
  return found;
}

ValueId NodeWriter::Emit(std::string_view op_name,
                         std::vector<ValueId> operands, Attrs node_attrs) {
  const OpDef* found = Find(op_name);
  if (found == nullptr) return graph_->AddValue(name);
  return graph_->AddNode(name, *found, std::move(operands),
                         std::move(node_attrs));
}

std::vector<ValueId> NodeWriter::EmitAll(std::string_view op_name,
                                         std::vector<ValueId> operands,
                                         const std::vector<bool>& wants,
                                         Attrs node_attrs) {
  std::vector<ValueId> outputs;
  for (const bool want : wants) {
    outputs.push_back(want ? graph_->AddValue(name) : kNoValue);
  }
  if (const OpDef* found = Find(op_name)) {
    graph_->nodes.push_back({.op = found,
                             .name = name,
                             .inputs = std::move(operands),
                             .outputs = outputs,
                             .attrs = std::move(node_attrs),
                             .bodies = {}});
  }
  return outputs;
}

std::vector<ValueId> NodeWriter::EmitSelf() {
  return EmitAll(op, inputs, wanted, attrs);
}

const Tensor* NodeWriter::ConstantOf(ValueId value) const {
  return value == kNoValue ? nullptr : graph_->value(value).constant.get();
}

Rewrite FindRow(std::span<const RewriteRow> rows, std::string_view op) {
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [&](const auto& r) { return r.first == op; });
  return row != rows.end() ? row->second : nullptr;
}

}  // namespace millrace::models::graph
