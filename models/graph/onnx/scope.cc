#include "models/graph/onnx/scope.h"

#include "models/graph/onnx/text.h"

namespace millrace::models::graph {

std::optional<ValueId> Scope::Find(const std::string& name) {
  if (const auto own = own_.find(name); own != own_.end()) return own->second;
  if (around_ == nullptr) return std::nullopt;
  const std::optional<ValueId> outside = around_->Find(name);
  if (!outside.has_value()) return std::nullopt;
  if (*outside == kNoValue) {  // an operand that a function was not given
    own_.emplace(name, kNoValue);
    return kNoValue;
  }
  const Value& value = around_->graph_->value(*outside);
  ValueId inside = kNoValue;
  if (value.constant != nullptr) {
    inside = graph_->AddValue(value.name);
    graph_->value(inside).constant = value.constant;
    graph_->value(inside).type = value.type;
  } else {
    inside = graph_->AddValue(name);
    captures_.push_back({name, *outside, inside});
  }
  own_.emplace(name, inside);
  return inside;
}

Status Scope::Define(const std::string& name, ValueId value) {
  if (own_.emplace(name, value).second) return OkStatus();
  return InvalidArgument("the name " + Quoted(name) +
                         " is given to two values of one graph");
}

}  // namespace millrace::models::graph
