// Which kind of model a file is, cores for it, and what all kinds get once they
// are loaded.
#include "server/lifecycle/load.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <string>
#include <utility>

#include "config/base/log.h"
#include "models/memory/truncation_guard.h"
#include "server/lifecycle/batching.h"
#include "server/lifecycle/ensemble_model.h"
#include "server/lifecycle/external_model.h"
#include "server/lifecycle/load_embedding.h"
#include "server/lifecycle/load_graph.h"
#include "server/lifecycle/load_language.h"
#include "server/lifecycle/load_transducer.h"
#include "server/lifecycle/lora_model.h"
#include "server/lifecycle/model_config.h"
#include "server/lifecycle/session_port.h"
#include "server/lifecycle/tensor_parallel.h"
#include "server/lifecycle/warmup_samples.h"

namespace millrace::server {
namespace {

// Names the path once.
Status CannotServe(const Status& status, const std::string& path) {
  const bool is_named = status.message().find(path) != std::string_view::npos;
  return status.Prefixed(is_named ? "cannot serve" : "cannot serve " + path);
}

// Of this process, in memory now (proc(5), statm).
Counter AddLoads(MetricRegistry& metrics, const char* outcome) {
  return metrics.AddCounter(
      "millrace_model_loads_total",
      "Loads of models and their versions by how they ended; the log says what "
      "was wrong.",
      {{"outcome", outcome}});
}

int64_t ResidentMib() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE) >> 20;
}

Status AddSessionPort(const config::PipelineSettings& pipeline,
                      MetricRegistry* metrics, Servable* servable) {
  const bool has_own = servable->session_port() != nullptr;
  if (pipeline.session == nullptr || has_own) return OkStatus();
  const auto graph = servable->ForTensors();
  if (!graph.ok()) return graph.status().Prefixed("session");
  ASSIGN_OR_RETURN(std::shared_ptr<const SessionPort> port,
                   SessionPort::Create(*pipeline.session, servable->id(),
                                       (*graph)->inputs(), metrics));
  servable->set_session_port(std::move(port));
  return OkStatus();
}

bool IsPlainGraph(const config::ModelSettings& settings,
                  const config::PipelineSettings& pipeline) {
  return pipeline.needs_cores() && pipeline.transducer == nullptr &&
         IsGraphFile(settings.path);
}

// What only some kinds of models have.
Status CheckKind(const config::ModelSettings& settings,
                 const config::PipelineSettings& pipeline) {
  const bool is_decoder = pipeline.needs_cores() &&
                          !IsGraphFile(settings.path) &&
                          IsEmbeddingModel(settings);
  const bool has_no_shadow = !pipeline.needs_cores() || is_decoder;
  if (pipeline.shadow != nullptr && has_no_shadow) {
    return InvalidArgument(
               "shadow is set beside '" + settings.path +
               "', but requests of ensembles, external handlers and vectors of "
               "a decoder have none; leave it out")
        .At("shadow");
  }
  if (pipeline.reshape != nullptr && !IsPlainGraph(settings, pipeline)) {
    return InvalidArgument(
               "reshape is set beside '" + settings.path +
               "', but only tensors of graphs (ONNX, .pt2) are reshaped; leave "
               "it out")
        .At("reshape");
  }
  if (pipeline.warmup != nullptr &&
      (is_decoder || pipeline.transducer != nullptr ||
       pipeline.ensemble != nullptr)) {
    return InvalidArgument(
               "model_warmup is set beside '" + settings.path +
               "', but only graphs, external handlers and language models "
               "compute samples of it; leave it out")
        .At("model_warmup");
  }
  return OkStatus();
}

// Holds the configuration against the model and completes it from there.
Status Configure(const VersionPlan& plan,
                 const config::PipelineSettings& pipeline, Servable* servable) {
  ModelConfig config;
  if (!plan.config.empty()) {
    ASSIGN_OR_RETURN(config, ModelConfig::FromJson(plan.config));
  }
  config.DescribePipeline(pipeline);
  const std::string& platform = servable->facts().platform;
  if (const auto graph = servable->ForTensors(); graph.ok()) {
    RETURN_IF_ERROR(config.Check((*graph)->inputs(), (*graph)->outputs()));
    config.Complete(servable->id(), platform, (*graph)->inputs(),
                    (*graph)->outputs(), plan.settings);
  } else {
    config.CompleteText(servable->id(), platform, plan.settings);
  }
  servable->set_config_json(config.ToJson());
  return OkStatus();
}

}  // namespace

ServableLoader::ServableLoader(LoaderParts parts)
    : parts_(std::move(parts)),
      num_loaded_(AddLoads(*parts_.metrics, "ok")),
      num_failed_(AddLoads(*parts_.metrics, "error")) {}

Status ServableLoader::LoadMembers(const std::string& name,
                                   const config::EnsembleSettings& ensemble) {
  loading_.push_back(name);
  Status status;
  for (const config::EnsembleStep& step : ensemble.steps) {
    const auto at = std::find(loading_.begin(), loading_.end(), step.model);
    if (at != loading_.end()) {
      std::string circle;
      for (auto each = at; each != loading_.end(); ++each) {
        circle += "'" + *each + "' needs ";
      }
      status = InvalidArgument("ensembles contain each other: " + circle + "'" +
                               step.model + "'")
                   .At("ensemble_scheduling");
      break;
    }
    if (parts_.lender->Serves(step.model)) continue;
    status = parts_.lender->repository()->LoadWithin(step.model);
    if (status.ok()) continue;
    status = status.Prefixed("the ensemble '" + name + "' needs '" +
                             step.model + "'");
    break;
  }
  loading_.pop_back();
  return status;
}

StatusOr<std::shared_ptr<Servable>> ServableLoader::Load(
    const VersionPlan& plan) {
  StatusOr<std::shared_ptr<Servable>> loaded = LoadOne(plan);
  (loaded.ok() ? num_loaded_ : num_failed_).Add();
  return loaded;
}

StatusOr<std::shared_ptr<Servable>> ServableLoader::LoadOne(
    const VersionPlan& plan) {
  const config::ModelSettings& settings = plan.settings;
  const auto begun = std::chrono::steady_clock::now();
  const int64_t resident_before = ResidentMib();
  ModelFacts facts;
  facts.id = config::ModelId(settings);
  facts.version = plan.version;
  facts.aliases = settings.served_model_name;
  facts.path = settings.path;
  facts.created_unix = std::chrono::duration_cast<std::chrono::seconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count();
  const std::string id = facts.id;
  const models::TruncationGuard guard;
  LoadProgress::Load load(parts_.progress, id, plan.version, settings.path);
  const config::PipelineSettings pipeline =
      parts_.pipelines == nullptr ? config::PipelineSettings()
                                  : parts_.pipelines->PipelineOf(id);
  if (pipeline.ensemble != nullptr) {
    RETURN_IF_ERROR(LoadMembers(id, *pipeline.ensemble));
  }
  RETURN_IF_ERROR(CheckKind(settings, pipeline));
  std::shared_ptr<const CoreAllocator::Lease> cores;  // of those that compute
  if (pipeline.needs_cores()) {
    ASSIGN_OR_RETURN(const CoreRequest wanted, CoresFor(settings));
    RETURN_IF_ERROR(parts_.cores->Check(wanted));
    cores = parts_.cores->Take(wanted);
  }
  StatusOr<std::shared_ptr<Servable>> loaded =
      pipeline.ensemble != nullptr
          ? EnsembleModel::Create(std::move(facts), *pipeline.ensemble,
                                  settings.common.max_queue_size, parts_.lender)
      : pipeline.external != nullptr
          ? ExternalModel::Create(
                std::move(facts),
                {.model = id,
                 .version = plan.version,
                 .folder = settings.path,
                 .handlers_path = HandlersPath(),
                 .settings = pipeline.external,
                 .num_instances =
                     std::max<int64_t>(settings.graph.instance_count, 1),
                 .max_waiting = settings.common.max_queue_size,
                 .lender = parts_.lender,
                 .pool = parts_.pool,
                 .registry = parts_.metrics})
      : pipeline.transducer != nullptr
          ? LoadTransducer(
                facts, settings, pipeline, parts_.pool, parts_.metrics,
                [&](ModelFacts part, const config::ModelSettings& alone,
                    bool one_core) {
                  config::CpuSet cpus = cores->cpus();
                  if (one_core && cpus.size() > 1) cpus.resize(1);
                  return LoadGraph(std::move(part), alone, cpus,
                                   *parts_.topology, parts_.memory_limit_bytes,
                                   parts_.pool, parts_.metrics,
                                   parts_.timeline);
                })
      : IsGraphFile(settings.path)
          ? LoadGraph(std::move(facts), settings, cores->cpus(),
                      *parts_.topology, parts_.memory_limit_bytes, parts_.pool,
                      parts_.metrics, parts_.timeline, pipeline, parts_.shadows)
      : IsEmbeddingModel(settings)
          ? LoadEmbeddingModel(std::move(facts), settings, cores->cpus(),
                               parts_.memory_limit_bytes, parts_.pool,
                               parts_.metrics,
                               [&load](double done) { load.Report(done); })
          : LoadLanguageModel(std::move(facts), settings, cores->cpus(), parts_,
                              pipeline.shadow,
                              [&load](double done) { load.Report(done); });
  // First: what else is wrong with the file, may follow from that.
  RETURN_IF_ERROR(CannotServe(guard.Check(), settings.path));
  if (!loaded.ok()) return CannotServe(loaded.status(), settings.path);
  Servable& servable = **loaded;
  RETURN_IF_ERROR(
      CannotServe(Configure(plan, pipeline, &servable), settings.path));
  // Instances of a graph have computed them already.
  if (pipeline.warmup != nullptr && !IsPlainGraph(settings, pipeline)) {
    RETURN_IF_ERROR(
        CannotServe(RunSamples(*pipeline.warmup, servable), settings.path));
  }
  RETURN_IF_ERROR(CannotServe(
      AddSessionPort(pipeline, parts_.metrics, &servable), settings.path));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun)
          .count();
  const Gauge load_seconds = parts_.metrics->AddGauge(
      "millrace_model_load_seconds",
      "Seconds from opening the model's files to being ready.",
      {{"model", servable.id()}, {"version", servable.version()}});
  load_seconds.Set(seconds);
  servable.Keep(std::make_shared<Gauge>(load_seconds));
  servable.Keep(std::move(cores));
  const int64_t resident = ResidentMib();
  const Gauge memory = parts_.metrics->AddGauge(
      "millrace_model_memory_bytes",
      "What the process's resident memory grew by while the model was loaded. "
      "KV pages and buffers of requests come on top with their first use.",
      {{"model", servable.id()}, {"version", servable.version()}});
  memory.Set(static_cast<double>(
      std::max<int64_t>(resident - resident_before, 0) << 20));
  servable.Keep(std::make_shared<Gauge>(memory));
  LogInfo("model ready", {{"model", id},
                          {"version", plan.version},
                          {"seconds", std::round(seconds * 1e3) / 1e3},
                          {"memory_mib", resident - resident_before},
                          {"resident_mib", resident}});
  return loaded;
}

StatusOr<std::shared_ptr<Servable>> ServableLoader::LoadAdapter(
    std::shared_ptr<Servable> base, const AdapterPlan& plan) {
  const models::TruncationGuard guard;
  auto loaded = LoadLoraModel(std::move(base), plan.name, plan.path);
  RETURN_IF_ERROR(CannotServe(guard.Check(), plan.path));
  return loaded;
}

}  // namespace millrace::server
