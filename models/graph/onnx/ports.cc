#include "models/graph/onnx/ports.h"

#include <onnx/onnx_pb.h>

#include <algorithm>

#include "config/base/utf8.h"
#include "models/graph/onnx/text.h"
#include "models/graph/onnx_dtype.h"
#include "models/tensor/strings.h"

namespace millrace::models::graph {
namespace {

int32_t SymbolOf(const std::string& name, Graph* graph) {
  const auto& symbols = graph->symbols;
  const auto known =
      std::find_if(symbols.begin(), symbols.end(),
                   [&](const Symbol& s) { return s.name == name; });
  if (known != symbols.end()) {
    return static_cast<int32_t>(known - symbols.begin());
  }
  return graph->AddSymbol(name);
}

// What exporters write for a dimension that has no name.
bool IsName(const std::string& text) {
  return !text.empty() && text != "?" && text != "-1" && text != "None";
}

// The tensor, also of a sequence; null: it is neither.
const onnx::TypeProto* TensorOf(const onnx::TypeProto* type) {
  if (type->has_sequence_type()) type = &type->sequence_type().elem_type();
  return type->has_tensor_type() ? type : nullptr;
}

bool IsMap(const onnx::TypeProto& type) {
  return type.has_map_type() ||
         (type.has_sequence_type() &&
          type.sequence_type().elem_type().has_map_type());
}

}  // namespace

StatusOr<Port> PortOf(const onnx::ValueInfoProto& info, Graph* graph,
                      bool is_output) {
  Port port;
  port.name = info.name();
  const std::string what = "port " + Quoted(port.name);
  if (port.name.empty() || !IsValidUtf8(port.name)) {
    return InvalidArgument(what + ": a name of UTF-8 is needed");
  }
  port.rank_known = false;
  // Some exporters write an empty type for outputs of branches.
  if (info.type().value_case() == onnx::TypeProto::VALUE_NOT_SET) return port;
  port.is_sequence = info.type().has_sequence_type();
  if (IsMap(info.type())) {
    // Answered as scores of classes, read as JSON objects: see ZipMap and
    // DictVectorizer in tabular.cc.
    port.is_sequence = false;
    port.rank_known = is_output;
    port.dtype = is_output ? DType::kF32 : kString;
    if (is_output) port.dims.resize(2);
    return port;
  }
  const onnx::TypeProto* tensor = TensorOf(&info.type());
  if (tensor == nullptr) {
    return Unimplemented(what + " is no tensor, which is not supported");
  }
  const auto& type = tensor->tensor_type();
  if (type.elem_type() != 0) {
    const auto dtype = DTypeFromOnnx(type.elem_type());
    if (!dtype.has_value()) {
      return Unimplemented(what + " is of " + OnnxTypeName(type.elem_type()) +
                           ", which is not supported");
    }
    port.dtype = *dtype;
  }
  if (!type.has_shape() || tensor != &info.type()) return port;
  if (type.shape().dim_size() > Shape::kMaxRank) {
    return InvalidArgument(what + " has " +
                           std::to_string(type.shape().dim_size()) +
                           " dimensions, the limit is 8");
  }
  port.rank_known = true;
  for (const auto& dim : type.shape().dim()) {
    PortDim& one = port.dims.emplace_back();
    if (dim.has_dim_value()) {
      // Some exporters write 0 or -1 where they mean any size.
      one.size = dim.dim_value() > 0 ? dim.dim_value() : -1;
    } else if (dim.has_dim_param() && IsName(dim.dim_param())) {
      one.symbol = SymbolOf(Cleaned(dim.dim_param()), graph);
    }
  }
  return port;
}

int DeclaredRank(const onnx::ValueInfoProto& info) {
  if (!info.type().has_tensor_type()) return -1;
  const auto& type = info.type().tensor_type();
  return type.has_shape() ? type.shape().dim_size() : -1;
}

}  // namespace millrace::models::graph
