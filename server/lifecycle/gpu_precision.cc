#include "server/lifecycle/gpu_precision.h"

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "config/base/log.h"
#include "models/graph/guard.h"

namespace millrace::server {
namespace {

namespace graph = models::graph;
using graph::DevicePrecision;

// What is not in bytes in a graph of int8.
constexpr DevicePrecision kBesideInt8 = DevicePrecision::kTf32;

Status CheckOnGpu(const config::GraphSettings& settings) {
  if (settings.backend == "onednn") {
    return InvalidArgument(
               "graph_backend is 'onednn', which computes on CPUs alone; set "
               "graph_backend to millrace, or device to cpu")
        .At("graph_backend");
  }
  return OkStatus();
}

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

std::string Name(DevicePrecision precision) {
  return std::string(graph::DevicePrecisionName(precision));
}

// A device belongs to one compiled graph: it is opened again for another.
StatusOr<PreparedGraph> PrepareAt(
    DevicePrecision precision, const std::shared_ptr<graph::GraphDevice>& gpu,
    const graph::Graph& model, graph::InstanceOptions options) {
  ASSIGN_OR_RETURN(
      options.device,
      graph::OpenGraphDevice(gpu->name(), precision, gpu->libraries()));
  PreparedGraph prepared;
  graph::CompileOptions compile = options;
  compile.weight_cpus = options.cpus;
  ASSIGN_OR_RETURN(const std::shared_ptr<graph::CompiledGraph> compiled,
                   graph::CompiledGraph::Create(model.Copy(), compile));
  prepared.context = graph::ExecutionContext::Create(compiled, options);
  prepared.graphs = {compiled};
  return prepared;
}

// What f16 and bf16 cost, on the samples.
StatusOr<double> ErrorAt(DevicePrecision precision,
                         const std::shared_ptr<graph::GraphDevice>& gpu,
                         const graph::Graph& model,
                         const config::ModelSettings& settings,
                         const graph::InstanceOptions& options) {
  ASSIGN_OR_RETURN(
      const graph::TensorSets samples,
      PrecisionSamples(settings.graph, model, graph::LeftOutSizes::kLeast));
  graph::TensorSets want;
  {
    ASSIGN_OR_RETURN(const PreparedGraph f32,
                     PrepareAt(DevicePrecision::kF32, gpu, model, options));
    ASSIGN_OR_RETURN(want, graph::RunAll(*f32.context, samples));
  }
  ASSIGN_OR_RETURN(const PreparedGraph rounded,
                   PrepareAt(precision, gpu, model, options));
  ASSIGN_OR_RETURN(const graph::TensorSets got,
                   graph::RunAll(*rounded.context, samples));
  return graph::ErrorOf(got, want);
}

// The layers that the table has, as far as their error allows.
Status QuantizeOn(const std::shared_ptr<graph::GraphDevice>& gpu,
                  const graph::Graph& model,
                  const config::ModelSettings& settings,
                  graph::InstanceOptions& options, PreparedGraph& all) {
  ASSIGN_OR_RETURN(options.quantization, QuantizationOf(settings));
  ASSIGN_OR_RETURN(
      const graph::TensorSets samples,
      PrecisionSamples(settings.graph, model, graph::LeftOutSizes::kLeast));
  const auto open = [&](bool in_f32) {
    return graph::OpenGraphDevice(gpu->name(),
                                  in_f32 ? DevicePrecision::kF32 : kBesideInt8,
                                  gpu->libraries());
  };
  ASSIGN_OR_RETURN(
      const graph::Guarded guarded,
      graph::CreateGuarded(
          model, options, samples,
          static_cast<double>(settings.graph.max_precision_error) / 1e6,
          graph::LeastMs, open));
  options.quantization = guarded.options.quantization;
  all.parameters = TellGuarded(settings, "int8", guarded.report);
  return OkStatus();
}

// Which of NVIDIA's libraries compute a layer of the graph, as a plan for the
// least sizes says: it is run once, in a context of its own.
void TellLibraries(const graph::GraphDevice& gpu, const graph::Graph& model,
                   const config::ModelSettings& settings,
                   const graph::InstanceOptions& options, PreparedGraph& all) {
  const graph::DeviceLibraries opened = gpu.libraries();
  if (opened.gemm == graph::GemmBackend::kNative &&
      opened.conv == graph::ConvBackend::kNative) {
    return;
  }
  const std::string id = config::ModelId(settings);
  const auto samples =
      PrecisionSamples(settings.graph, model, graph::LeftOutSizes::kLeast);
  const auto context =
      graph::ExecutionContext::Create(all.graphs.front(), options);
  const Status ran =
      samples.ok() ? context->Run(samples->front()).status() : samples.status();
  if (!ran.ok()) {
    LogInfo("what NVIDIA's libraries compute is not known before a request",
            {{"model", id}, {"why", ran.message()}});
    return;
  }
  const graph::DeviceCounts counts = context->device_counts();
  LogInfo("layers that NVIDIA's libraries compute",
          {{"model", id},
           {"cublaslt", counts.by_cublaslt},
           {"cudnn", counts.by_cudnn},
           {"operators", counts.on_device}});
  if (counts.by_cublaslt > 0) {
    all.parameters.emplace_back("gemm_backend", "cublaslt");
  }
  if (counts.by_cudnn > 0) {
    all.parameters.emplace_back("conv_backend", "cudnn");
  }
}

}  // namespace

StatusOr<Gpus> GpusFor(const config::ModelSettings& settings) {
  const std::string& name = settings.common.device;
  const Status fits = name == "cpu" ? OkStatus() : CheckOnGpu(settings.graph);
  if (!fits.ok() && name == "auto") {
    LogInfo("graphs run on the CPU", {{"why", fits.message()}});
    return Gpus();
  }
  RETURN_IF_ERROR(fits);
  graph::DeviceLibraries libraries;
  ASSIGN_OR_RETURN(libraries.gemm,
                   graph::GemmBackendOf(settings.llm.gemm_backend));
  ASSIGN_OR_RETURN(libraries.conv,
                   graph::ConvBackendOf(settings.graph.conv_backend));
  return graph::OpenGraphDevices(
      name,
      graph::DevicePrecisionOf(settings.graph.precision).value_or(kBesideInt8),
      libraries);
}

StatusOr<PreparedGraph> PrepareOnGpus(Gpus gpus, const graph::Graph& model,
                                      const config::ModelSettings& settings,
                                      graph::InstanceOptions options) {
  const DevicePrecision asked = gpus.front()->precision();
  DevicePrecision served = asked;
  std::vector<std::pair<std::string, std::string>> told;
  if (asked != DevicePrecision::kF32 && asked != DevicePrecision::kTf32) {
    ASSIGN_OR_RETURN(const double error,
                     ErrorAt(asked, gpus.front(), model, settings, options));
    const double allowed =
        static_cast<double>(settings.graph.max_precision_error) / 1e6;
    const std::string id = config::ModelId(settings);
    LogInfo("precision held against f32",
            {{"model", id},
             {"precision", Name(asked)},
             {"error", Number(error)},
             {"max_error", Number(allowed)},
             {"samples", settings.graph.precision_samples.empty()
                             ? "made up"
                             : settings.graph.precision_samples}});
    if (error > allowed) {
      served = DevicePrecision::kTf32;
      LogWarning("served in tf32 because the error is too large",
                 {{"model", id},
                  {"precision", Name(asked)},
                  {"error", Number(error)}});
      told.emplace_back("precision_asked", Name(asked));
    }
    told.emplace_back("precision_error", Number(error));
  }
  PreparedGraph all;
  const bool is_int8 = settings.graph.precision == "int8";
  if (is_int8) {
    RETURN_IF_ERROR(QuantizeOn(gpus.front(), model, settings, options, all));
  }
  std::string names;
  for (const auto& gpu : gpus) {
    ASSIGN_OR_RETURN(PreparedGraph one, PrepareAt(served, gpu, model, options));
    names += (names.empty() ? "" : ",") + gpu->name();
    all.graphs.push_back(one.graphs.front());
    if (all.context == nullptr) all.context = std::move(one.context);
  }
  all.parameters.insert(all.parameters.end(), told.begin(), told.end());
  if (!is_int8) all.parameters.emplace_back("precision", Name(served));
  all.parameters.emplace_back("device", names);
  TellLibraries(*gpus.front(), model, settings, options, all);
  return all;
}

}  // namespace millrace::server
