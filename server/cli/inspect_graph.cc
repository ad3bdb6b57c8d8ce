#include "server/cli/inspect_graph.h"

#include <cstdio>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/size_text.h"
#include "models/graph/compiled_graph.h"
#include "models/graph/execution_context.h"
#include "models/graph/import.h"
#include "models/graph/op.h"
#include "models/graph/ports.h"
#include "models/graph/sample_inputs.h"
#include "server/cli/graph_options.h"

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

// Whose kernels compute each layer, as --graph-backend says. The plan of a run
// is asked, since oneDNN has no fast primitive for some sizes.
Status PrintLayers(const ParsedArgs& args, const graph::Graph& graph) {
  std::printf("\n");
  ASSIGN_OR_RETURN(const graph::InstanceOptions options,
                   GraphOptions(args, args.positional()[0]));
  ASSIGN_OR_RETURN(const GraphRun run,
                   PrepareGraphRun(args, graph.Copy(), options));
  graph::Trace trace;
  RETURN_IF_ERROR(run.context->Run(run.inputs, {.trace = &trace}).status());
  std::printf("layers\n");
  if (trace.steps.empty()) {
    std::printf(
        "  none: the shapes of this graph depend on its data, so it is "
        "interpreted\n");
    return OkStatus();
  }
  std::printf("  %-32s %-11s %s\n", "node of the model", "kernels of", "step");
  for (const graph::StepInfo& step : trace.steps) {
    const bool is_onednn = !step.onednn_shape.empty();
    if (!is_onednn && step.macs == 0) continue;
    std::printf("  %-32s %-11s %s\n", step.name.c_str(),
                is_onednn ? "oneDNN" : "millrace", step.text.c_str());
  }
  return OkStatus();
}

// One run on the device, with made-up inputs of one row.
Status PrintPlaces(const ParsedArgs& args, const std::string& path,
                   const graph::Graph& graph) {
  ASSIGN_OR_RETURN(const graph::InstanceOptions options,
                   GraphOptions(args, path));
  if (options.device == nullptr) {
    std::printf("device         cpu\n");
    return OkStatus();
  }
  ASSIGN_OR_RETURN(const auto context,
                   graph::CreateInstance(graph.Copy(), options));
  ASSIGN_OR_RETURN(const auto inputs,
                   graph::SampleInputs(context->compiled_graph()->graph(), {},
                                       graph::LeftOutSizes::kLeast));
  RETURN_IF_ERROR(context->Run(inputs).status());
  const std::string name = options.device->name();
  const std::string text = context->PlanText();
  if (text.empty()) {
    std::printf(
        "device         cpu: shapes depend on data, so the graph is "
        "interpreted on the CPU\n");
    return OkStatus();
  }
  const graph::DeviceCounts counts = context->device_counts();
  std::printf("\nwhere operators run, one row of made-up inputs\n");
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    std::printf("  %s\n", text.substr(at, end - at).c_str());
    at = end + 1;
  }
  std::printf(
      "\ndevice         %lld operators on %s, %lld on the CPU; %lld copies, %s "
      "a run\n",
      static_cast<long long>(counts.on_device), name.c_str(),
      static_cast<long long>(counts.on_cpu),
      static_cast<long long>(counts.copies),
      SizeText(counts.copied_bytes).c_str());
  std::printf(
      "precision      %s: factors of products and convolutions%s\n",
      options.quantization != nullptr
          ? "int8 where the table has it, else tf32"
          : std::string(graph::DevicePrecisionName(options.device->precision()))
                .c_str(),
      counts.narrow_bytes > 0 ? ", values between them" : "");
  return OkStatus();
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

Status InspectGraph(const ParsedArgs& args) {
  const std::string& path = args.positional()[0];
  const std::string device(args.Text("device", "cpu"));
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
  if (args.Has("graph-backend")) {
    RETURN_IF_ERROR(PrintLayers(args, *imported));
  }
  if (device != "cpu") {
    const Status placed = PrintPlaces(args, path, *imported);
    if (!placed.ok()) return NotServable(path, placed);
  }
  std::printf("\nservable       yes: millrace serve %s%s\n", path.c_str(),
              device == "cpu" ? "" : (" --device " + device).c_str());
  return OkStatus();
}

}  // namespace millrace::server
