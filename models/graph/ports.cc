#include "models/graph/ports.h"

#include <optional>

namespace millrace::models::graph {
namespace {

Status Unfit(const Port& port, const std::vector<Symbol>& symbols,
             const Tensor& tensor, std::string_view why) {
  return InvalidArgument("input '" + port.name + "' is " +
                         TypeText(tensor.dtype(), tensor.shape()) +
                         " but the model takes " + PortText(port, symbols) +
                         std::string(why))
      .At(port.name);
}

}  // namespace

std::string PortText(const Port& port, const std::vector<Symbol>& symbols) {
  std::string text = std::string(DTypeName(port.dtype)) + " ";
  if (!port.rank_known) return text + "of any shape";
  text += "[";
  for (size_t i = 0; i < port.dims.size(); ++i) {
    const PortDim& dim = port.dims[i];
    if (i > 0) text += ", ";
    if (dim.symbol >= 0) {
      text += symbols[static_cast<size_t>(dim.symbol)].name;
    } else {
      text += dim.size >= 0 ? std::to_string(dim.size) : "?";
    }
  }
  return text + "]";
}

Status CheckInputs(const std::vector<Port>& ports,
                   const std::vector<Symbol>& symbols,
                   const std::vector<Tensor>& inputs,
                   const std::vector<bool>& left_out) {
  if (inputs.size() != ports.size()) {
    return InvalidArgument("the model takes " + std::to_string(ports.size()) +
                           " inputs, the request has " +
                           std::to_string(inputs.size()));
  }
  std::vector<std::optional<int64_t>> bound(symbols.size());
  for (size_t i = 0; i < ports.size(); ++i) {
    if (!left_out.empty() && left_out[i]) continue;
    const Port& port = ports[i];
    const Tensor& tensor = inputs[i];
    if (tensor.dtype() != port.dtype) return Unfit(port, symbols, tensor, "");
    if (!port.rank_known) continue;
    if (static_cast<size_t>(tensor.shape().rank()) != port.dims.size()) {
      return Unfit(port, symbols, tensor, "");
    }
    for (size_t axis = 0; axis < port.dims.size(); ++axis) {
      const int64_t size = tensor.shape()[static_cast<int>(axis)];
      const PortDim& dim = port.dims[axis];
      if (dim.symbol < 0) {
        if (dim.size >= 0 && dim.size != size) {
          return Unfit(port, symbols, tensor, "");
        }
        continue;
      }
      const Symbol& symbol = symbols[static_cast<size_t>(dim.symbol)];
      if (size < symbol.min || size > symbol.max) {
        return Unfit(port, symbols, tensor,
                     " with " + symbol.name + " from " +
                         std::to_string(symbol.min) + " to " +
                         std::to_string(symbol.max));
      }
      auto& known = bound[static_cast<size_t>(dim.symbol)];
      if (known && *known != size) {
        return Unfit(port, symbols, tensor,
                     ", and another input has " + symbol.name + " " +
                         std::to_string(*known));
      }
      known = size;
    }
  }
  return OkStatus();
}

}  // namespace millrace::models::graph
