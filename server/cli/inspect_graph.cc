#include "server/cli/inspect_graph.h"

#include <cstdio>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "models/graph/compiled_graph.h"
#include "models/graph/import.h"
#include "models/graph/op.h"
#include "models/graph/ports.h"

namespace millrace::server {
namespace {

namespace graph = models::graph;

void PrintPorts(const char* title, const std::vector<graph::Port>& ports,
                const std::vector<graph::Symbol>& symbols) {
  std::printf("\n%s\n", title);
  for (const graph::Port& port : ports) {
    std::printf("  %-32s %s\n", port.name.c_str(),
                graph::PortText(port, symbols).c_str());
  }
}

// Those of inputs: sizes of results follow from them.
void PrintSymbols(const std::vector<graph::Port>& inputs,
                  const std::vector<graph::Symbol>& symbols) {
  std::set<int32_t> used;
  for (const graph::Port& port : inputs) {
    for (const graph::PortDim& dim : port.dims) {
      if (dim.symbol >= 0) used.insert(dim.symbol);
    }
  }
  if (used.empty()) return;
  std::printf("\nsizes that may differ\n");
  for (const int32_t i : used) {
    const graph::Symbol& symbol = symbols[static_cast<size_t>(i)];
    const bool open = symbol.max == graph::Symbol().max;
    std::printf("  %-32s from %lld%s\n", symbol.name.c_str(),
                static_cast<long long>(symbol.min > 0 ? symbol.min : 1),
                open ? "" : (" to " + std::to_string(symbol.max)).c_str());
  }
}

// Of the graph and of the bodies in it.
void CountOps(const graph::Graph& graph,
              std::map<std::string_view, int64_t>& counts) {
  for (const graph::Node& node : graph.nodes) {
    ++counts[node.op->name];
    for (const auto& body : node.bodies) CountOps(*body, counts);
  }
}

void PrintUnsupported(const graph::ImportReport& report) {
  std::printf("\nnot supported (%zu nodes)\n", report.unsupported.size());
  for (const graph::UnsupportedNode& node : report.unsupported) {
    std::printf("  %-40s %s\n      %s; inputs: %s\n", node.op.c_str(),
                node.node.c_str(), node.why.c_str(), node.inputs.c_str());
  }
}

void PrintOperators(const graph::Graph& graph) {
  int64_t weight_bytes = 0;
  int64_t parameters = 0;
  for (const graph::Value& value : graph.values) {
    if (!value.constant) continue;
    weight_bytes += value.constant->num_bytes();
    parameters += value.constant->num_elements();
  }
  std::map<std::string_view, int64_t> counts;
  CountOps(graph, counts);
  std::printf("\noperators (%zu nodes)\n", graph.nodes.size());
  for (const auto& [name, count] : counts) {
    std::printf("  %-32s %8lld\n", std::string(name).c_str(),
                static_cast<long long>(count));
  }
  std::printf("\nconstants      %lld values, %.1f MiB\n",
              static_cast<long long>(parameters),
              static_cast<double>(weight_bytes) / (1 << 20));
}

// Everything that loading does but packing weights, which needs no proof.
StatusOr<std::shared_ptr<graph::CompiledGraph>> Prepare(
    const graph::Graph& graph) {
  return graph::CompiledGraph::Create(graph.Copy(), {.interpret = true});
}

void PrintPrepared(const graph::CompiledGraph& prepared) {
  PrintPorts("inputs", prepared.inputs(), prepared.symbols());
  PrintSymbols(prepared.inputs(), prepared.symbols());
  PrintPorts("outputs", prepared.outputs(), prepared.symbols());
}

void PrintBatching(const graph::CompiledGraph& prepared) {
  const graph::BatchAxis& axis = prepared.batch_axis();
  std::printf("batching       %s\n", axis.batchable
                                         ? "requests can be joined to one batch"
                                         : ("no: " + axis.reason).c_str());
}

Status NotServable(const std::string& path, const Status& why) {
  // The path stands before it already.
  std::string text(why.message());
  const std::string prefix = "'" + path + "': ";
  if (text.starts_with(prefix)) text.erase(0, prefix.size());
  std::printf("\nservable       no: %s\n", text.c_str());
  return FailedPrecondition("'" + path + "' cannot be served");
}

}  // namespace

Status InspectGraph(const std::string& path) {
  graph::ImportReport report;
  const StatusOr<graph::Graph> imported = graph::ImportGraph(path, &report);
  if (!report.format.empty()) {
    std::printf("%s: %s, by %s\n", path.c_str(), report.format.c_str(),
                report.producer.empty() ? "an unnamed program"
                                        : report.producer.c_str());
  } else {
    std::printf("%s\n", path.c_str());
  }
  if (!imported.ok()) {
    if (!report.unsupported.empty()) PrintUnsupported(report);
    return NotServable(path, imported.status());
  }
  const auto prepared = Prepare(*imported);
  if (prepared.ok()) {
    PrintPrepared(**prepared);
  } else {
    PrintPorts("inputs", imported->inputs, imported->symbols);
    PrintPorts("outputs", imported->outputs, imported->symbols);
  }
  PrintOperators(*imported);
  if (!prepared.ok()) return NotServable(path, prepared.status());
  PrintBatching(**prepared);
  std::printf("\nservable       yes: millrace serve %s\n", path.c_str());
  return OkStatus();
}

}  // namespace millrace::server
