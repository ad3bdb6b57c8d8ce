// The attributes of a NodeProto that are numbers, texts or lists of them.
#pragma once

#include <map>
#include <string>

#include "config/base/status.h"
#include "models/graph/attrs.h"

namespace onnx {
class AttributeProto;
class NodeProto;
}  // namespace onnx

namespace millrace::models::graph {

// What a function's caller gives for the names its body refers to.
using AttributeScope =
    std::map<std::string, const onnx::AttributeProto*, std::less<>>;

// The attribute itself, or what the caller of the function gave for the name
// it refers to; null: left out by the caller.
const onnx::AttributeProto* Resolve(const onnx::AttributeProto& attribute,
                                    const AttributeScope& scope);
const onnx::AttributeProto* FindAttribute(const onnx::NodeProto& node,
                                          std::string_view name,
                                          const AttributeScope& scope);

// INVALID_ARGUMENT: one of them is of another type than every operator takes
// under that name. Tensors, graphs and types are left out.
// Operators of ai.onnx.ml have names of their own and are not checked.
StatusOr<Attrs> AttrsOf(const onnx::NodeProto& node,
                        const AttributeScope& scope);

}  // namespace millrace::models::graph
