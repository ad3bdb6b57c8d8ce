// Parts stand in the order they are built in and die in the reverse one: the
// front ends first, then the models, then what models and front ends borrow.
#include "server/app.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "config/base/log.h"
#include "config/base/metrics.h"
#include "config/base/mutex.h"
#include "config/base/timeline.h"
#include "config/environment.h"
#include "config/topology.h"
#include "handlers/pool.h"
#include "models/gpu/lost_device.h"
#include "server/audit.h"
#include "server/auth.h"
#include "server/batches/batches.h"
#include "server/compat_metrics.h"
#include "server/gpu_metrics.h"
#include "server/grpc/server.h"
#include "server/host_metrics.h"
#include "server/http/listener.h"
#include "server/lifecycle/core_allocator.h"
#include "server/lifecycle/load.h"
#include "server/lifecycle/load_progress.h"
#include "server/lifecycle/pipeline_source.h"
#include "server/lifecycle/repository.h"
#include "server/lifecycle/repository_lender.h"
#include "server/lifecycle/settings_source.h"
#include "server/lifecycle/traffic_split.h"
#include "server/protocol_state.h"
#include "server/tls.h"
#include "server/torchserve/management.h"
#include "server/torchserve/tokens.h"
#include "server/torchserve/workflows.h"
#include "server/tracing/capture.h"
#include "server/tracing/otlp_exporter.h"
#include "server/tracing/request_traces.h"
#include "server/version.h"

namespace millrace::server {
namespace {

// Every connection is a file. Some more are for scrapers and probes when there
// is no place for others, and some belong to libraries and models.
constexpr int64_t kFilesBesideConnections = 256;
// Tasks that may wait for the handler pool: one for each place that any
// admission could give, and then some.
constexpr size_t kMaxQueuedHandlerTasks = 4096;
// As TorchServe calls it, in the working folder.
constexpr const char* kKeyFile = "key_file.json";

// Raises the soft limit of open files to what max_connections needs.
Status EnsureOpenFiles(int64_t max_connections) {
  const auto needed =
      static_cast<rlim_t>(max_connections + kFilesBesideConnections);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) {
    return OkStatus();
  }
  if (limit.rlim_max < needed) {
    return FailedPrecondition(
               "max_connections is " + std::to_string(max_connections) +
               " and needs " + std::to_string(needed) +
               " open files, but this process may have " +
               std::to_string(limit.rlim_max) +
               "; raise it (ulimit -n) or lower --max-connections")
        .At("max_connections");
  }
  limit.rlim_cur = needed;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return Internal("cannot raise the limit of open files to " +
                    std::to_string(needed));
  }
  return OkStatus();
}

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "unknown";
  return name;
}

int HandlerThreads(const config::ServerSettings& settings,
                   const config::Topology& topology) {
  if (settings.handler_threads > 0) {
    return static_cast<int>(settings.handler_threads);
  }
  return std::max<int>(2, static_cast<int>(topology.cores().size()) / 4);
}

// Whether the operator has keys of their own, so that none are made.
bool NamesKeys(const config::ServerSettings& settings) {
  return !settings.api_key.empty() || !settings.api_key_file.empty() ||
         !settings.api_keys_file.empty() || !settings.jwt_jwks_file.empty();
}

// In the order of loading.
StatusOr<std::vector<std::string>> ModelsOfTheStart(
    const config::ServerSettings& settings, ModelSource* source) {
  const bool all = settings.model_repository.empty() ||
                   settings.model_control_mode != "explicit" ||
                   settings.load_model == std::vector<std::string>{"*"};
  if (all) return source->Names();
  return settings.load_model;
}

// A model of a repository may ask for others when its configuration is read.
StatusOr<std::vector<CoreRequest>> CoresWanted(
    const std::vector<std::string>& names, const config::Settings& settings,
    const CoreAllocator& cores, ModelSource* source) {
  const auto* pipelines = dynamic_cast<const PipelineSource*>(source);
  std::vector<CoreRequest> requests;
  for (const std::string& name : names) {
    if (pipelines != nullptr) {
      // What is wrong with it, its load says.
      static_cast<void>(source->Find(name, {}).ok());
      if (!pipelines->PipelineOf(name).needs_cores()) continue;
    }
    config::ModelSettings of_name{.name = name, .common = settings.common};
    for (const config::ModelSettings& model : settings.models) {
      if (config::ModelId(model) == name) of_name.common = model.common;
    }
    ASSIGN_OR_RETURN(CoreRequest request, CoresFor(of_name));
    RETURN_IF_ERROR(cores.Check(request));
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace

struct App::Parts {
  explicit Parts(LoadProgress::Show show) : progress(std::move(show)) {}
  ~Parts() {
    models::OnDeviceLost(nullptr);
    if (management != nullptr) management->StopDownloads();
    if (loader.joinable()) {
      repository->SetState(ServerState::kDraining);
      loader.join();
    }
    shadows.Stop();  // lets go of the repository's models
  }

  // on_failed asks the process to end, so it is not called while it ends.
  void Fail(const Status& status) {
    {
      MutexLock lock(mu);
      load_status = status;
    }
    if (on_failed && !ending.load(std::memory_order_relaxed)) on_failed();
  }

  std::atomic<bool> ending = false;  // relaxed: it only spares a signal
  Mutex mu;
  Status load_status GUARDED_BY(mu);
  config::Settings settings;
  std::function<void()> on_failed;
  LoadProgress progress;
  MetricRegistry metrics;
  Gauge build_info;
  std::shared_ptr<void> host_metrics;  // of each scrape
  std::shared_ptr<void> gpu_metrics;   // likewise; null: no GPU
  Timeline timeline;
  std::unique_ptr<RequestTraces> traces;
  std::unique_ptr<Auth> auth;
  std::unique_ptr<Certificates> certificates;  // null: no TLS
  std::unique_ptr<AuditLog> audit;
  std::unique_ptr<handlers::Pool> pool;
  std::optional<config::Topology> topology;
  std::unique_ptr<CoreAllocator> cores;
  std::unique_ptr<torchserve::MetricLog> metric_log;   // null: none is wanted
  std::unique_ptr<torchserve::Registry> torchserve;    // null: another profile
  std::unique_ptr<torchserve::Tokens> tokens;          // null: no key file
  std::unique_ptr<torchserve::Management> management;  // null: as torchserve
  RepositoryLender lender;                             // of the repository
  handlers::ShadowRunner shadows{&lender};
  std::unique_ptr<Repository> repository;
  std::unique_ptr<torchserve::Workflows> workflows;  // null: as torchserve
  std::optional<ProtocolState> state;                // once the log is set up
  std::unique_ptr<Capturer> capturer;
  std::unique_ptr<Batches> batches;  // null: no folder for them
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<GrpcServer> grpc;

  // Relaxed: says only whether to wait for the thread.
  std::atomic<bool> loading = true;
  std::thread loader;  // of the models of the start
};

App::App(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
App::~App() = default;

StatusOr<std::unique_ptr<App>> App::Start(const config::Settings& settings,
                                          Options options) {
  auto parts = std::make_unique<Parts>(std::move(options.show));
  parts->settings = settings;
  parts->on_failed = std::move(options.on_failed);
  RETURN_IF_ERROR(EnsureOpenFiles(settings.server.max_connections));
  const bool issues_keys = options.torchserve.has_value() &&
                           !NamesKeys(settings.server) &&
                           !settings.server.no_auth;
  ASSIGN_OR_RETURN(
      parts->auth,
      Auth::Create(settings.server, &Clock::Real(),
                   issues_keys ? KeySource::kIssued : KeySource::kSettings));
  ASSIGN_OR_RETURN(parts->certificates, Certificates::Load(settings.server));
  ASSIGN_OR_RETURN(parts->audit,
                   AuditLog::Open(settings.server.audit_log_file));
  ASSIGN_OR_RETURN(parts->topology, config::Topology::Detect());
  const config::Topology& topology = *parts->topology;
  ASSIGN_OR_RETURN(OtlpOptions otlp,
                   ReadOtlpOptions(settings.server.otlp_endpoint,
                                   config::ProcessEnvironment()));
  std::unique_ptr<OtlpExporter> exporter;
  if (!otlp.host.empty()) {
    LogInfo("spans are exported", {{"host", otlp.host},
                                   {"port", otlp.port},
                                   {"path", otlp.path},
                                   {"service", otlp.resource.service_name}});
    exporter = std::make_unique<OtlpExporter>(std::move(otlp), &parts->metrics);
  }
  parts->traces = std::make_unique<RequestTraces>(
      std::move(exporter), &parts->timeline, &Clock::Real());
  // Handlers float over all cores: the compute teams are the ones pinned.
  parts->pool = std::make_unique<handlers::Pool>(
      HandlerThreads(settings.server, topology), kMaxQueuedHandlerTasks,
      config::CpuSet{}, &parts->timeline);
  parts->build_info = parts->metrics.AddGauge(
      "millrace_build_info", "Always 1; the labels tell the build.",
      {{"version", std::string(Version())}});
  parts->build_info.Set(1);
  parts->host_metrics = ExportHostMetrics(parts->metrics);
  parts->gpu_metrics = ExportGpuMetrics(parts->metrics);
  ASSIGN_OR_RETURN(std::vector<MetricAlias> compat,
                   CompatMetrics(settings.server.metrics_compat, HostName()));
  parts->metrics.ExportAlso(std::move(compat));

  parts->cores = std::make_unique<CoreAllocator>(topology);
  std::unique_ptr<ModelSource> source;
  std::vector<std::string> at_start;
  bool lenient = !options.exit_on_error;  // what cannot be loaded is left out
  if (options.torchserve.has_value()) {
    torchserve::RegistryOptions registry = *std::move(options.torchserve);
    lenient =
        lenient || registry.load_models == std::vector<std::string>{"all"};
    registry.settings = {.common = settings.common, .graph = settings.graph};
    if (!registry.metric_log.folder.empty()) {
      ASSIGN_OR_RETURN(parts->metric_log,
                       torchserve::MetricLog::Open(registry.metric_log));
    }
    parts->torchserve = std::make_unique<torchserve::Registry>(
        std::move(registry), parts->metric_log.get());
    RETURN_IF_ERROR(parts->torchserve->RegisterAll(lenient));
    source = parts->torchserve->Source();
    ASSIGN_OR_RETURN(at_start, source->Names());
  } else {
    ASSIGN_OR_RETURN(source, SourceOf(settings));
    ASSIGN_OR_RETURN(at_start, ModelsOfTheStart(settings.server, source.get()));
  }
  ASSIGN_OR_RETURN(
      const std::vector<CoreRequest> cores_wanted,
      CoresWanted(at_start, settings, *parts->cores, source.get()));
  parts->cores->Reserve(cores_wanted);
  const std::string& mode = settings.server.model_control_mode;
  const bool polls =
      mode == "poll" && !settings.server.model_repository.empty();
  ModelSource* const models = source.get();  // the repository's
  parts->repository = std::make_unique<Repository>(
      std::move(source),
      std::make_unique<ServableLoader>(
          LoaderParts{.cores = parts->cores.get(),
                      .topology = &topology,
                      .memory_limit_bytes = topology.memory_limit_bytes(),
                      .pool = parts->pool.get(),
                      .lender = &parts->lender,
                      .shadows = &parts->shadows,
                      .pipelines = dynamic_cast<const PipelineSource*>(models),
                      .metrics = &parts->metrics,
                      .progress = &parts->progress,
                      .timeline = &parts->timeline,
                      .group = std::move(options.group),
                      .on_group_broken =
                          [parts = parts.get()](const Status& status) {
                            parts->Fail(status);
                          }}),
      RepositoryOptions{
          .allow_control = mode == "explicit" || parts->torchserve != nullptr,
          .allow_adapter_updates = settings.server.allow_runtime_lora_updating,
          .poll_interval = std::chrono::milliseconds(
              polls ? settings.server.repository_poll_ms : 0),
          .make_choice =
              [registry = &parts->metrics](
                  const std::string& model,
                  const config::TrafficSettings& traffic) {
                return std::make_shared<TrafficSplit>(model, traffic, registry);
              },
          .progress = &parts->progress});
  models::OnDeviceLost([parts = parts.get()](const Status& status) {
    LogError("the server ends, for another one can serve",
             {{"why", status.message()}});
    parts->Fail(status);
  });
  parts->lender.Bind(parts->repository.get());
  if (parts->torchserve != nullptr) {
    parts->management = std::make_unique<torchserve::Management>(
        parts->torchserve.get(), parts->repository.get());
    parts->workflows = std::make_unique<torchserve::Workflows>(
        parts->torchserve.get(), parts->management.get(),
        parts->repository.get(), parts->pool.get());
    parts->management->Bind(parts->workflows.get());
  }
  if (issues_keys) {
    const std::chrono::seconds lifetime(
        parts->torchserve->options().token_lifetime_s);
    ASSIGN_OR_RETURN(parts->tokens, torchserve::Tokens::Create(
                                        kKeyFile, lifetime, parts->auth.get()));
  }
  parts->state.emplace(
      settings.server.shared_memory,
      static_cast<uint64_t>(settings.server.http_max_input_bytes));
  parts->capturer =
      std::make_unique<Capturer>(&parts->timeline, &Clock::Real());
  if (!settings.server.batch_dir.empty()) {
    ASSIGN_OR_RETURN(
        parts->batches,
        Batches::Open({.dir = settings.server.batch_dir,
                       .max_bytes = settings.server.batch_dir_max_bytes}));
  }
  ASSIGN_OR_RETURN(
      parts->http,
      HttpServer::Start(settings.server,
                        {.repository = parts->repository.get(),
                         .pool = parts->pool.get(),
                         .metrics = &parts->metrics,
                         .auth = parts->auth.get(),
                         .certificates = parts->certificates.get(),
                         .audit = parts->audit.get(),
                         .state = &*parts->state,
                         .batches = parts->batches.get(),
                         .traces = parts->traces.get(),
                         .capturer = parts->capturer.get(),
                         .topology = &*parts->topology,
                         .cores = parts->cores.get(),
                         .torchserve = parts->torchserve.get(),
                         .torchserve_management = parts->management.get(),
                         .torchserve_tokens = parts->tokens.get()}));
  if (settings.server.grpc_port >= 0) {
    ASSIGN_OR_RETURN(
        parts->grpc,
        GrpcServer::Start(settings.server,
                          {.repository = parts->repository.get(),
                           .pool = parts->pool.get(),
                           .metrics = &parts->metrics,
                           .auth = parts->auth.get(),
                           .certificates = parts->certificates.get(),
                           .audit = parts->audit.get(),
                           .state = &*parts->state,
                           .traces = parts->traces.get(),
                           .torchserve = parts->torchserve.get(),
                           .torchserve_management = parts->management.get()}));
  }
  std::unique_ptr<App> app(new App(std::move(parts)));
  LogInfo("listening", {{"host", settings.server.host},
                        {"http_port", app->http_port()},
                        {"grpc_port", app->grpc_port()},
                        {"tls", app->parts_->certificates != nullptr}});
  app->parts_->progress.Expect(static_cast<int>(at_start.size()));
  app->parts_->loader =
      std::thread([app = app.get(), at_start, lenient = lenient || polls] {
        app->LoadModels(at_start, lenient);
      });
  return app;
}

void App::LoadModels(const std::vector<std::string>& names, bool lenient) {
  // Only a name for top -H: naming a thread cannot fail.
  static_cast<void>(config::PinThisThread({}, "start"));
  const auto begun = std::chrono::steady_clock::now();
  Repository& repository = *parts_->repository;
  const config::ServerSettings& server = parts_->settings.server;
  if (names.empty() && !server.model_repository.empty() &&
      server.model_control_mode != "explicit") {
    LogWarning("the model repository has no models",
               {{"path", server.model_repository},
                {"a_model_is",
                 "NAME/VERSION/model.onnx (.pt2, .gguf) or "
                 "NAME.onnx"}});
  }
  int64_t num_loaded = 0;
  Status failed;
  for (const std::string& name : names) {
    if (repository.state() == ServerState::kDraining) break;
    const auto load_begun = std::chrono::steady_clock::now();
    const Status loaded = repository.Load(name);
    if (loaded.ok()) {
      ++num_loaded;
      parts_->progress.CountReady();
    }
    if (loaded.ok() && parts_->management != nullptr) {
      parts_->management->Loaded(name,
                                 std::chrono::steady_clock::now() - load_begun);
    }
    // Its error was logged; what is polled may be mended later.
    if (!loaded.ok() && !lenient) {
      failed = loaded;
      break;
    }
  }
  parts_->loading.store(false, std::memory_order_relaxed);
  // A load that the end of the process refused is no failure.
  if (repository.state() == ServerState::kDraining) return;
  if (!failed.ok()) {
    parts_->Fail(failed);
    return;
  }
  repository.SetState(ServerState::kReady);
  if (parts_->grpc != nullptr) parts_->grpc->SetReady();
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - begun;
  LogFieldList fields;
  fields.Add("host", server.host);
  fields.Add("http_port", http_port());
  fields.Add("grpc_port", grpc_port());
  fields.Add("management_port", parts_->http->management_port());
  fields.Add("metrics_port", parts_->http->metrics_port());
  fields.Add("models", num_loaded);
  const int64_t num_failed = static_cast<int64_t>(names.size()) - num_loaded;
  if (num_failed > 0) fields.Add("models_not_loaded", num_failed);
  fields.Add("seconds", std::round(seconds.count() * 1e3) / 1e3);
  LogInfo("ready", fields);
}

bool App::loading() const {
  return parts_->loading.load(std::memory_order_relaxed);
}

Status App::load_status() const {
  MutexLock lock(parts_->mu);
  return parts_->load_status;
}

int App::http_port() const { return parts_->http->port(); }

int App::grpc_port() const {
  return parts_->grpc == nullptr ? -1 : parts_->grpc->port();
}

bool App::Shutdown() {
  parts_->ending.store(true, std::memory_order_relaxed);
  const auto deadline =
      std::chrono::steady_clock::now() +
      std::chrono::milliseconds(parts_->settings.server.shutdown_timeout_ms);
  parts_->repository->SetState(ServerState::kDraining);
  if (parts_->management != nullptr) parts_->management->StopDownloads();
  parts_->capturer->Stop();
  // Its requests are asked again after the next start.
  if (parts_->batches != nullptr) parts_->batches->Stop();
  if (parts_->grpc != nullptr) parts_->grpc->StopAccepting();
  LogInfo("draining",
          {{"timeout_ms", parts_->settings.server.shutdown_timeout_ms}});
  // HTTP goes on answering 503 meanwhile, so that probes and balancers learn
  // why, and each answer ends its connection.
  parts_->http->Leave();
  const bool clean = parts_->repository->Drain(deadline);
  parts_->http->StopAccepting();
  // What ended must still reach its client: a moment beyond the deadline.
  const auto last = std::max(
      deadline, std::chrono::steady_clock::now() + std::chrono::seconds(1));
  parts_->http->Stop(last);
  if (parts_->grpc != nullptr) parts_->grpc->Stop(last);
  LogInfo("stopped", {{"clean", clean}});
  return clean;
}

void App::RemoveFiles() {
  if (parts_->torchserve != nullptr) parts_->torchserve->Clear();
  if (parts_->tokens != nullptr) parts_->tokens->RemoveFile();
}

}  // namespace millrace::server
