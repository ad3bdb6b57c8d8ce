#include "server/lifecycle/graph_precision.h"

#include <cstdio>
#include <utility>

#include "config/base/log.h"
#include "models/cpu/onednn/onednn.h"
#include "models/graph/backend_choice.h"
#include "models/graph/sample_inputs.h"
#include "server/lifecycle/gpu_precision.h"

namespace millrace::server {
namespace {

namespace graph = models::graph;

// Names that a log line or a metadata's value can hold.
constexpr size_t kMostNames = 20;

std::string Names(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i == kMostNames) {
      return text + ", and " + std::to_string(names.size() - i) + " more";
    }
    if (i > 0) text += ", ";
    text += names[i];
  }
  return text;
}

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

}  // namespace

StatusOr<graph::TensorSets> PrecisionSamples(
    const config::GraphSettings& settings, const graph::Graph& model,
    graph::LeftOutSizes left_out) {
  ASSIGN_OR_RETURN(
      graph::TensorSets samples,
      graph::ReadSamples(settings.precision_samples, model.inputs));
  if (!samples.empty()) return samples;
  auto made_up = graph::SampleInputs(model, {}, left_out);
  if (!made_up.ok()) {
    return made_up.status().Prefixed(
        "give precision_samples, since inputs cannot be made up");
  }
  samples.push_back(*std::move(made_up));
  return samples;
}

StatusOr<std::shared_ptr<const graph::QuantizationTable>> QuantizationOf(
    const config::ModelSettings& settings) {
  const std::string& file = settings.graph.quantization;
  ASSIGN_OR_RETURN(graph::QuantizationTable table,
                   graph::LoadQuantization(
                       file.empty() ? settings.path + ".quant.json" : file));
  return std::make_shared<const graph::QuantizationTable>(std::move(table));
}

std::vector<std::pair<std::string, std::string>> TellGuarded(
    const config::ModelSettings& settings, const std::string& precision,
    const graph::PrecisionReport& report) {
  const std::string id = config::ModelId(settings);
  const double allowed =
      static_cast<double>(settings.graph.max_precision_error) / 1e6;
  const auto in_f32 = static_cast<int64_t>(report.f32_layers.size());
  LogInfo("precision held against f32",
          {{"model", id},
           {"precision", precision},
           {"layers", report.layers},
           {"error", Number(report.error)},
           {"error_of_all", Number(report.asked_error)},
           {"max_error", Number(allowed)},
           {"samples", settings.graph.precision_samples.empty()
                           ? "made up"
                           : settings.graph.precision_samples},
           {"f32_layers", in_f32},
           {"f32_ms", Number(report.f32_ms)},
           {"reduced_ms", Number(report.reduced_ms)}});
  if (report.too_slow) {
    LogWarning("served in f32, which is faster here",
               {{"model", id},
                {"precision", precision},
                {"f32_ms", Number(report.f32_ms)},
                {"reduced_ms", Number(report.reduced_ms)}});
  } else if (in_f32 > 0) {
    LogWarning("layers stay in f32 because their error is too large",
               {{"model", id}, {"layers", Names(report.f32_layers)}});
  }
  return {{"precision", report.too_slow ? "f32" : precision},
          {"precision_error", Number(report.error)},
          {"precision_layers", std::to_string(report.layers)},
          {"precision_f32_layers", Names(report.f32_layers)}};
}

namespace {

Status SetPrecision(const config::ModelSettings& settings,
                    graph::InstanceOptions& options) {
  if (settings.graph.precision == "bf16") {
    options.precision = graph::Precision::kBf16;
    return OkStatus();
  }
  ASSIGN_OR_RETURN(options.quantization, QuantizationOf(settings));
  return OkStatus();
}

// ---- what oneDNN computes ----
// Our kernels alone where auto finds no oneDNN.
StatusOr<graph::OneDnnUse> ChooseAuto(const graph::Graph& model,
                                      const config::ModelSettings& settings,
                                      const graph::InstanceOptions& options,
                                      PreparedGraph& prepared) {
  const std::string id = config::ModelId(settings);
  if (const auto library = models::onednn::Open(); !library.ok()) {
    LogWarning("graph_backend auto takes our kernels",
               {{"model", id}, {"because", library.status().message()}});
    prepared.parameters.emplace_back("graph_backend", "millrace");
    return graph::OneDnnUse();
  }
  const bool is_f32 =
      options.precision == graph::Precision::kF32 && !options.quantization;
  const double allowed =
      is_f32 ? 1e-4
             : static_cast<double>(settings.graph.max_precision_error) / 1e6;
  ASSIGN_OR_RETURN(
      const graph::TensorSets samples,
      PrecisionSamples(settings.graph, model, graph::LeftOutSizes::kLikely));
  ASSIGN_OR_RETURN(const graph::BackendChoice choice,
                   graph::ChooseBackend(model, options, samples, allowed));
  const auto shapes = static_cast<int64_t>(choice.use.shapes.size());
  LogInfo("graph_backend measured",
          {{"model", id},
           {"shapes", choice.possible},
           {"onednn_shapes", shapes},
           {"millrace_ms", Number(choice.millrace_ms)},
           {"chosen_ms", Number(choice.chosen_ms)},
           {"error", Number(choice.error)}});
  for (const auto& [name, value] :
       {std::pair<const char*, std::string>{"graph_backend",
                                            shapes > 0 ? "onednn" : "millrace"},
        {"graph_backend_shapes",
         std::to_string(shapes) + " of " + std::to_string(choice.possible)},
        {"graph_backend_millrace_ms", Number(choice.millrace_ms)},
        {"graph_backend_chosen_ms", Number(choice.chosen_ms)}}) {
    prepared.parameters.emplace_back(name, value);
  }
  return choice.use;
}

// Compiles the graph again where oneDNN is to compute some of its layers.
Status UseBackend(const graph::Graph& model,
                  const config::ModelSettings& settings,
                  graph::InstanceOptions options, PreparedGraph& prepared) {
  if (settings.graph.backend == "millrace") return OkStatus();
  if (settings.graph.backend == "onednn") {
    options.onednn.all = true;
    prepared.parameters.emplace_back("graph_backend", "onednn");
  } else {
    ASSIGN_OR_RETURN(options.onednn,
                     ChooseAuto(model, settings, options, prepared));
  }
  if (!options.onednn.any()) return OkStatus();
  prepared.context = nullptr;  // their memory
  prepared.graphs.clear();
  graph::CompileOptions compile = options;
  compile.weight_cpus = options.cpus;
  ASSIGN_OR_RETURN(const std::shared_ptr<graph::CompiledGraph> compiled,
                   graph::CompiledGraph::Create(model.Copy(), compile));
  prepared.context = graph::ExecutionContext::Create(compiled, options);
  prepared.graphs = {compiled};
  return OkStatus();
}

StatusOr<PreparedGraph> PrepareInF32(graph::Graph model,
                                     const graph::InstanceOptions& options) {
  PreparedGraph prepared;
  graph::CompileOptions compile = options;
  compile.weight_cpus = options.cpus;
  ASSIGN_OR_RETURN(const std::shared_ptr<graph::CompiledGraph> compiled,
                   graph::CompiledGraph::Create(std::move(model), compile));
  prepared.context = graph::ExecutionContext::Create(compiled, options);
  prepared.graphs = {compiled};
  prepared.parameters = {{"precision", "f32"}};
  return prepared;
}

}  // namespace

StatusOr<PreparedGraph> PrepareGraph(graph::Graph model,
                                     const config::ModelSettings& settings,
                                     graph::InstanceOptions options) {
  const std::string id = config::ModelId(settings);
  ASSIGN_OR_RETURN(const auto gpus, GpusFor(settings));
  if (!gpus.empty()) return PrepareOnGpus(gpus, model, settings, options);
  std::string precision = settings.graph.precision;
  if (precision == "tf32" || precision == "f16") {
    LogWarning("CPUs have no products of " + precision + ": f32",
               {{"model", id}});
    precision = "f32";
  }
  if (precision == "auto") precision = "f32";
  if (precision == "bf16" && !graph::HasBf16(options.isa)) {
    LogWarning(
        "this CPU, or the isa asked for, has no products of bf16 that are "
        "faster than f32's: f32",
        {{"model", id}});
    precision = "f32";
  }
  if (precision == "f32") {
    if (settings.graph.backend == "millrace") {
      return PrepareInF32(std::move(model), options);
    }
    ASSIGN_OR_RETURN(PreparedGraph prepared,
                     PrepareInF32(model.Copy(), options));
    RETURN_IF_ERROR(UseBackend(model, settings, options, prepared));
    return prepared;
  }

  RETURN_IF_ERROR(SetPrecision(settings, options));
  ASSIGN_OR_RETURN(
      const graph::TensorSets samples,
      PrecisionSamples(settings.graph, model, graph::LeftOutSizes::kLeast));
  const double allowed =
      static_cast<double>(settings.graph.max_precision_error) / 1e6;
  ASSIGN_OR_RETURN(graph::Guarded guarded,
                   graph::CreateGuarded(model, options, samples, allowed));
  const graph::PrecisionReport& report = guarded.report;
  PreparedGraph prepared;
  prepared.graphs = {std::move(guarded.graph)};
  prepared.context = std::move(guarded.context);
  prepared.parameters = TellGuarded(settings, precision, report);
  if (report.f32_ms > 0) {
    for (const auto& [name, value] :
         {std::pair<const char*, std::string>{"precision_asked", precision},
          {"precision_f32_ms", Number(report.f32_ms)},
          {"precision_asked_ms", Number(report.reduced_ms)}}) {
      prepared.parameters.emplace_back(name, value);
    }
  }
  RETURN_IF_ERROR(UseBackend(model, settings, guarded.options, prepared));
  return prepared;
}

}  // namespace millrace::server
