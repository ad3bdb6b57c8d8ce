#include "server/lifecycle/load_transducer.h"

#include <algorithm>
#include <utility>

#include "config/base/log.h"
#include "config/task_settings.h"
#include "config/transducer_settings.h"
#include "handlers/make_task.h"
#include "server/lifecycle/transducer_model.h"

namespace millrace::server {
namespace {

// What would look at one graph's requests, and sees three.
Status CheckAlone(const config::ModelSettings& settings,
                  const config::PipelineSettings& pipeline) {
  const std::pair<bool, const char*> others[] = {
      {pipeline.sequences != nullptr, "sequence_batching"},
      {pipeline.micro_batching != nullptr, "micro_batching"},
      {pipeline.ragged != nullptr, "ragged_inputs"},
      {pipeline.drift != nullptr, "drift"},
      {pipeline.shadow != nullptr, "shadow"},
      {settings.graph.response_cache, "response_cache"}};
  for (const auto& [is_there, name] : others) {
    if (!is_there) continue;
    return InvalidArgument(
               std::string(name) +
               " is set together with transducer, whose sessions have "
               "a state and three graphs; leave it out")
        .At(name);
  }
  if (settings.task != nullptr &&
      settings.task->kind == config::TaskKind::kTranscribe) {
    return OkStatus();
  }
  return InvalidArgument(
             "transducer is set without 'task: transcribe', whose options "
             "say which sound and tokens it has; add the task")
      .At("transducer");
}

}  // namespace

StatusOr<std::shared_ptr<Servable>> LoadTransducer(
    const ModelFacts& facts, const config::ModelSettings& settings,
    const config::PipelineSettings& pipeline, handlers::Pool* pool,
    MetricRegistry* metrics, const LoadPart& load_part) {
  RETURN_IF_ERROR(CheckAlone(settings, pipeline));
  handlers::TaskParts parts = {.model = facts.id,
                               .path = settings.path,
                               .settings = settings.task,
                               .pool = pool,
                               .max_queue_size = settings.common.max_queue_size,
                               .registry = metrics};
  if (pipeline.answer != nullptr) parts.answer = *pipeline.answer;
  const int64_t num_encoders =
      std::max<int64_t>(settings.graph.instance_count, 1);
  const auto load = [&](const std::string& name, const std::string& path,
                        int64_t instance_count, bool one_core) {
    ModelFacts part = facts;
    part.id += "/" + name;
    part.path = path;
    config::ModelSettings alone = settings;
    alone.path = path;
    alone.task = nullptr;
    alone.graph.instance_count = instance_count;
    // Room for all runs that are admitted, wherever they are.
    alone.common.max_queue_size += num_encoders;
    StatusOr<std::shared_ptr<Servable>> loaded =
        load_part(std::move(part), alone, one_core);
    if (loaded.ok()) return loaded;
    return StatusOr<std::shared_ptr<Servable>>(
        loaded.status().Prefixed("the " + name + " " + path));
  };
  const config::TransducerSettings& names = *pipeline.transducer;
  ASSIGN_OR_RETURN(
      const std::string predictor,
      handlers::FindTaskFile(parts, "transducer.predictor", names.predictor));
  ASSIGN_OR_RETURN(
      const std::string joiner,
      handlers::FindTaskFile(parts, "transducer.joiner", names.joiner));
  TransducerModel::Graphs graphs;
  ASSIGN_OR_RETURN(graphs.encoder,
                   load("encoder", settings.path, num_encoders, false));
  // They are short and asked one after the other: teams of several cores would
  // mostly wait for each other.
  ASSIGN_OR_RETURN(graphs.predictor, load("predictor", predictor, 1, true));
  ASSIGN_OR_RETURN(graphs.joiner, load("joiner", joiner, 1, true));
  ASSIGN_OR_RETURN(
      std::shared_ptr<Servable> model,
      TransducerModel::Create(facts, std::move(graphs), parts, pipeline));
  LogInfo("transducer loaded",
          {{"model", facts.id},
           {"beam_width", parts.answer.transcript.beam_width},
           {"segment_length", names.segment_length},
           {"right_context_length", names.right_context_length}});
  return model;
}

}  // namespace millrace::server
