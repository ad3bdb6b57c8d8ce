#include "server/cli/graph_options.h"

#include <cstdio>
#include <memory>
#include <utility>

#include "models/graph/backend_choice.h"
#include "server/cli/graph_inputs.h"

namespace millrace::server {

namespace graph = models::graph;

StatusOr<graph::InstanceOptions> GraphOptions(const ParsedArgs& args,
                                              const std::string& path) {
  graph::InstanceOptions options;
  ASSIGN_OR_RETURN(const int64_t threads, args.Int("threads", 0, 0, 1024));
  ASSIGN_OR_RETURN(options.cpus, TeamFor(threads));
  options.isa = args.Text("isa", "");
  const std::string precision = args.Text("precision", "auto");
  const auto on_device = graph::DevicePrecisionOf(precision);
  graph::DeviceLibraries libraries;
  ASSIGN_OR_RETURN(libraries.gemm,
                   graph::GemmBackendOf(args.Text("gemm-backend", "native")));
  ASSIGN_OR_RETURN(libraries.conv,
                   graph::ConvBackendOf(args.Text("conv-backend", "native")));
  ASSIGN_OR_RETURN(
      options.device,
      graph::OpenGraphDevice(args.Text("device", "cpu"),
                             on_device.value_or(graph::DevicePrecision::kTf32),
                             libraries));
  if (options.device != nullptr && on_device) return options;
  if (options.device != nullptr && precision != "int8") {
    return UsageError(
        "--precision " + precision +
        " is not known; auto, f32, tf32, f16, bf16 and int8 are for a GPU");
  }
  if (precision == "bf16") {
    options.precision = graph::Precision::kBf16;
  } else if (precision == "int8") {
    ASSIGN_OR_RETURN(graph::QuantizationTable table,
                     graph::LoadQuantization(
                         args.Text("quantization", path + ".quant.json")));
    options.quantization =
        std::make_shared<const graph::QuantizationTable>(std::move(table));
  } else if (precision != "f32" && precision != "auto") {
    return UsageError("--precision " + precision +
                      " is not for a CPU; auto, f32, bf16 and int8 are");
  }
  return options;
}

StatusOr<GraphRun> PrepareGraphRun(const ParsedArgs& args, graph::Graph graph,
                                   graph::InstanceOptions options) {
  const std::string backend = args.Text("graph-backend", "millrace");
  if (backend != "millrace" && backend != "onednn" && backend != "auto") {
    return UsageError("--graph-backend " + backend +
                      " is not known; auto, millrace and onednn are");
  }
  if (options.device != nullptr && backend != "millrace") {
    return UsageError("--graph-backend " + backend +
                      " is for CPUs; a GPU has kernels of its own");
  }
  options.onednn.all = backend == "onednn";
  GraphRun run;
  ASSIGN_OR_RETURN(run.context, graph::CreateInstance(graph.Copy(), options));
  ASSIGN_OR_RETURN(run.inputs, GraphInputs(args, *run.context));
  if (!args.Has("input")) {
    std::fputs(InputsText(args, *run.context, run.inputs).c_str(), stdout);
    std::fflush(stdout);
  }
  if (backend != "auto") return run;
  graph::TensorSets samples;
  for (const models::Tensor& input : run.inputs) {
    if (samples.empty()) samples.emplace_back();
    samples[0].push_back(input.Share());
  }
  run.context = nullptr;  // its memory
  // Any error: `run --expect` shows it.
  ASSIGN_OR_RETURN(const graph::BackendChoice choice,
                   graph::ChooseBackend(graph, options, samples, 1));
  std::printf("oneDNN computes %zu of %lld shapes of layers: %.3g -> %.3g ms\n",
              choice.use.shapes.size(), static_cast<long long>(choice.possible),
              choice.millrace_ms, choice.chosen_ms);
  options.onednn = choice.use;
  ASSIGN_OR_RETURN(run.context,
                   graph::CreateInstance(std::move(graph), options));
  return run;
}

}  // namespace millrace::server
