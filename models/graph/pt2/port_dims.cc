#include "models/graph/pt2/port_dims.h"

#include <algorithm>

namespace millrace::models::graph::pt2 {

int32_t PortDims::AddSymbol(const std::string& name) {
  const int32_t added = graph_.AddSymbol(name);
  const auto range = program_.ranges.find(name);
  if (range == program_.ranges.end()) return added;
  // A least size of 2 is what PyTorch assumes of any size that it traces, not
  // what the model needs; its own runtime lets 1 pass too.
  Symbol& symbol = graph_.symbols.back();
  symbol.min = std::max<int64_t>(range->second.first, 0);
  if (symbol.min == 2) symbol.min = 1;
  symbol.max = range->second.second;
  return added;
}

std::vector<PortDim> PortDims::OfInput(const TensorMeta& meta) {
  std::vector<PortDim> dims;
  for (const Dim& dim : meta.sizes) {
    PortDim& port = dims.emplace_back();
    if (dim.fixed) port.size = dim.hint;
    if (dim.symbol.empty()) continue;
    const auto [row, is_new] = symbols_.try_emplace(dim.symbol, -1);
    if (is_new) row->second = AddSymbol(dim.symbol);
    port.symbol = row->second;
  }
  return dims;
}

std::vector<PortDim> PortDims::OfOutput(const TensorMeta& meta) const {
  std::vector<PortDim> dims;
  for (const Dim& dim : meta.sizes) {
    PortDim& port = dims.emplace_back();
    if (dim.fixed) port.size = dim.hint;
    const auto symbol = symbols_.find(dim.symbol);
    if (symbol != symbols_.end()) port.symbol = symbol->second;
  }
  return dims;
}

}  // namespace millrace::models::graph::pt2
