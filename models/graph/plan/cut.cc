#include "models/graph/plan/cut.h"

#include <algorithm>
#include <set>
#include <vector>

#include "models/graph/plan/node_bytes.h"
#include "models/tensor/strings.h"

namespace millrace::models::graph {
namespace {

// For each number of first nodes the only value that later ones and results
// read of them and of the inputs; kNoValue where there are several.
std::vector<ValueId> OnlyValues(const Graph& graph) {
  const size_t num_nodes = graph.nodes.size();
  constexpr size_t kNever = 0;
  std::vector<size_t> read_by(graph.values.size(), kNever);  // node, from 1 on
  const auto is_value = [&](ValueId id) {
    return id != kNoValue && graph.value(id).constant == nullptr;
  };
  for (size_t i = 0; i < num_nodes; ++i) {
    for (const ValueId id : graph.nodes[i].inputs) {
      if (is_value(id)) read_by[static_cast<size_t>(id)] = i + 1;
    }
  }
  for (const Port& port : graph.outputs) {
    read_by[static_cast<size_t>(port.value)] = num_nodes + 1;
  }
  std::set<ValueId> live;
  for (const Port& port : graph.inputs) {
    if (read_by[static_cast<size_t>(port.value)] != kNever) {
      live.insert(port.value);
    }
  }
  std::vector<ValueId> only(num_nodes + 1, kNoValue);
  for (size_t i = 0; i < num_nodes; ++i) {
    const Node& node = graph.nodes[i];
    for (const ValueId id : node.outputs) {
      if (is_value(id)) live.insert(id);
    }
    for (const auto* ids : {&node.inputs, &node.outputs}) {
      for (const ValueId id : *ids) {
        if (is_value(id) && read_by[static_cast<size_t>(id)] <= i + 1) {
          live.erase(id);
        }
      }
    }
    if (live.size() == 1) only[i + 1] = *live.begin();
  }
  return only;
}

bool IsImageOrMatrix(const Value& value) {
  return value.type && value.type->shape.rank() > 1 &&
         value.type->dtype != kString;
}

Port PortOf(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  Port port;
  port.name = value.name;
  port.value = id;
  port.dtype = value.type->dtype;
  for (const int64_t size : value.type->shape) {
    port.dims.push_back({.size = size});
  }
  return port;
}

}  // namespace

Cut ChooseCut(const Graph& one, bool has_bf16) {
  // Of all bytes: less is not worth a second way to compute a batch.
  constexpr double kWorth = 0.1;
  const std::vector<ValueId> only = OnlyValues(one);
  Cut best;
  double most = 0;
  double excess = 0;  // of values over weights, in the nodes so far
  double all = 0;
  for (size_t i = 0; i < one.nodes.size(); ++i) {
    const double weights = NodeBytes(one, one.nodes[i], true, has_bf16);
    const double values = NodeBytes(one, one.nodes[i], false, has_bf16);
    excess += values - weights;
    all += values + weights;
    const ValueId value = only[i + 1];
    if (i + 1 == one.nodes.size() || value == kNoValue || excess <= most ||
        !IsImageOrMatrix(one.value(value))) {
      continue;
    }
    most = excess;
    best = {i + 1, value};
  }
  const double uncut = std::max(excess, 0.0);  // all rows apart, or none
  return most - uncut >= kWorth * all ? best : Cut();
}

Cut SameCut(const Graph& one, const Cut& cut, const Graph& whole,
            int64_t batch) {
  if (cut.nodes == 0 || one.nodes.size() != whole.nodes.size()) return {};
  for (size_t i = 0; i < one.nodes.size(); ++i) {
    if (one.nodes[i].op != whole.nodes[i].op) return {};
  }
  const ValueId id = OnlyValues(whole)[cut.nodes];
  if (id == kNoValue) return {};
  const Value& a = one.value(cut.value);
  const Value& b = whole.value(id);
  if (a.name != b.name || !b.type || a.type->dtype != b.type->dtype ||
      a.type->shape.rank() != b.type->shape.rank()) {
    return {};
  }
  for (int i = 0; i < a.type->shape.rank(); ++i) {
    const int64_t rows = i == 0 ? batch : 1;
    if (a.type->shape[i] * rows != b.type->shape[i]) return {};
  }
  return {cut.nodes, id};
}

Graph HeadOf(const Graph& graph, const Cut& cut) {
  Graph head = graph.Copy();
  head.nodes.resize(cut.nodes);
  head.outputs = {PortOf(graph, cut.value)};
  return head;
}

Graph TailOf(const Graph& graph, const Cut& cut) {
  Graph tail = graph.Copy();
  tail.nodes.erase(tail.nodes.begin(),
                   tail.nodes.begin() + static_cast<int64_t>(cut.nodes));
  tail.inputs = {PortOf(graph, cut.value)};
  return tail;
}

}  // namespace millrace::models::graph
