// The functions that a model brings with it. Their calls are replaced by their
// bodies.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/graph/onnx/attributes.h"

namespace onnx {
class AttributeProto;
class FunctionProto;
class ModelProto;
class NodeProto;
}  // namespace onnx

namespace millrace::models::graph {

// Opset versions by domain; "" is ONNX's own.
using Opsets = std::map<std::string, int64_t, std::less<>>;

struct Function {
  const onnx::FunctionProto* proto = nullptr;
  Opsets opsets;
  AttributeScope defaults;
};

// Immutable after Create; the model lives longer.
class FunctionTable {
 public:
  static StatusOr<FunctionTable> Create(const onnx::ModelProto& model);

  // Null when the node calls no function of the model.
  const Function* Find(const onnx::NodeProto& node) const;

 private:
  std::map<std::string, Function> functions_;
  // What Function points into.
  std::vector<std::shared_ptr<const onnx::AttributeProto>> defaults_;
};

template <typename Imports>
Opsets OpsetsOf(const Imports& imports) {
  Opsets opsets;
  for (const auto& one : imports) {
    const bool own = one.domain() == "ai.onnx";
    opsets[own ? std::string() : one.domain()] = one.version();
  }
  return opsets;
}

}  // namespace millrace::models::graph
