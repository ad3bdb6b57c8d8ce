#include "server/cli/inspect_graph.h"

#include <cstdio>
#include <map>
#include <string_view>
#include <vector>

#include "models/graph/execution_context.h"
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

void PrintSymbols(const std::vector<graph::Symbol>& symbols) {
  for (const graph::Symbol& symbol : symbols) {
    const bool open = symbol.max == graph::Symbol().max;
    std::printf("  %-32s from %lld%s\n", symbol.name.c_str(),
                static_cast<long long>(symbol.min),
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

void PrintGraph(const graph::Graph& graph) {
  PrintPorts("inputs", graph.inputs, graph.symbols);
  if (!graph.symbols.empty()) {
    std::printf("\nsizes that may differ\n");
    PrintSymbols(graph.symbols);
  }
  PrintPorts("outputs", graph.outputs, graph.symbols);
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

}  // namespace

Status InspectGraph(const std::string& path) {
  graph::ImportReport report;
  const StatusOr<graph::Graph> imported = graph::ImportGraph(path, &report);
  if (!report.format.empty()) {
    std::printf("%s: %s, by %s\n", path.c_str(), report.format.c_str(),
                report.producer.c_str());
  }
  if (imported.ok()) {
    PrintGraph(*imported);
    return OkStatus();
  }
  if (report.unsupported.empty()) return imported.status();
  PrintUnsupported(report);
  return OkStatus();
}

}  // namespace millrace::server
