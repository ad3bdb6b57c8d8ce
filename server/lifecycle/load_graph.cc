// A servable of tensors: a handler before a batcher before an execution
// context of the graph.
// Weights may stay in the mapped file, which must not change while it is
// served.
#include "server/lifecycle/load_graph.h"

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "config/base/log.h"
#include "handlers/tensors.h"
#include "models/graph/execution_context.h"
#include "models/graph/import.h"
#include "models/graph/sample_inputs.h"
#include "scheduler/batcher.h"
#include "server/lifecycle/graph_model.h"
#include "server/lifecycle/graph_precision.h"

namespace millrace::server {

bool IsGraphFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  const std::string extension = std::filesystem::path(path).extension();
  if (extension == ".onnx" || extension == ".pt2") return true;
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return std::string_view(magic, sizeof magic) == "PK\x03\x04";
}

StatusOr<std::shared_ptr<Servable>> LoadGraph(
    ModelFacts facts, const config::ModelSettings& settings,
    const config::CpuSet& team, int64_t memory_limit_bytes,
    handlers::Pool* pool, MetricRegistry* metrics) {
  const std::string id = facts.id;
  models::graph::ImportReport report;
  ASSIGN_OR_RETURN(models::graph::Graph graph,
                   models::graph::ImportGraph(settings.path, &report));
  const size_t num_nodes = graph.nodes.size();
  models::graph::InstanceOptions options;
  options.cpus = team;
  options.isa = settings.common.isa;
  options.max_bytes = memory_limit_bytes / 2;
  ASSIGN_OR_RETURN(PreparedGraph prepared,
                   PrepareGraph(std::move(graph), settings, options));

  // Inputs that cannot be made up leave the first request to do this work.
  auto warm_up = models::graph::SampleInputs(prepared.context->inputs(),
                                             prepared.context->symbols(), {});

  facts.parameters = std::move(prepared.parameters);
  facts.platform =
      report.format.starts_with("ONNX") ? "millrace_onnx" : "millrace_pytorch";
  auto batcher = scheduler::Batcher::Create(
      std::move(prepared.context),
      {.model = id,
       .max_queue_size = static_cast<int32_t>(settings.common.max_queue_size)},
      metrics,
      warm_up.ok() ? *std::move(warm_up) : std::vector<models::Tensor>());
  auto handler = handlers::MakeTensorHandler(
      {.model = id, .batcher = batcher.get(), .pool = pool});
  LogInfo("graph loaded", {{"model", id},
                           {"format", report.format},
                           {"producer", report.producer},
                           {"nodes", static_cast<int64_t>(num_nodes)},
                           {"threads", static_cast<int64_t>(team.size())}});
  return std::make_shared<GraphModel>(std::move(facts), std::move(batcher),
                                      std::move(handler));
}

}  // namespace millrace::server
