// Parts stand in the order they are built in and die in the reverse one: the
// front ends first, then the models, then what models and front ends borrow.
#include "server/app.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "config/base/log.h"
#include "config/base/metrics.h"
#include "config/topology.h"
#include "handlers/pool.h"
#include "server/auth.h"
#include "server/grpc/server.h"
#include "server/http/listener.h"
#include "server/lifecycle/load.h"
#include "server/lifecycle/manager.h"
#include "server/version.h"

namespace millrace::server {
namespace {

// Every connection is a file; some more belong to libraries and models.
constexpr int64_t kFilesBesideConnections = 64;
// Tasks that may wait for the handler pool: one for each place that any
// admission could give, and then some.
constexpr size_t kMaxQueuedHandlerTasks = 4096;

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

int HandlerThreads(const config::ServerSettings& settings,
                   const config::Topology& topology) {
  if (settings.handler_threads > 0) {
    return static_cast<int>(settings.handler_threads);
  }
  return std::max<int>(2, static_cast<int>(topology.cores().size()) / 4);
}

}  // namespace

struct App::Parts {
  config::Settings settings;
  MetricRegistry metrics;
  Gauge build_info;
  std::unique_ptr<Auth> auth;
  std::unique_ptr<handlers::Pool> pool;
  Manager manager;
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<GrpcServer> grpc;
};

App::App(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
App::~App() = default;

StatusOr<std::unique_ptr<App>> App::Start(
    const config::Settings& settings,
    std::function<void(const std::string&, double)> progress) {
  auto parts = std::make_unique<Parts>();
  parts->settings = settings;
  RETURN_IF_ERROR(EnsureOpenFiles(settings.server.max_connections));
  ASSIGN_OR_RETURN(Auth auth, Auth::Create(settings.server));
  parts->auth = std::make_unique<Auth>(std::move(auth));
  ASSIGN_OR_RETURN(const config::Topology topology, config::Topology::Detect());
  // Handlers float over all cores: the compute teams are the ones pinned.
  parts->pool = std::make_unique<handlers::Pool>(
      HandlerThreads(settings.server, topology), kMaxQueuedHandlerTasks,
      config::CpuSet{});
  parts->build_info = parts->metrics.AddGauge(
      "millrace_build_info", "Always 1; the labels tell the build.",
      {{"version", std::string(Version())}});
  parts->build_info.Set(1);

  const std::vector<config::CpuSet> teams =
      PlanTeams(topology, settings.models);
  for (size_t i = 0; i < settings.models.size(); ++i) {
    const config::ModelSettings& model = settings.models[i];
    for (const std::shared_ptr<Servable>& other : parts->manager.List()) {
      if (!model.name.empty() && other->id() == model.name) {
        return InvalidArgument("two models are called '" + model.name +
                               "'; give one of them another NAME=PATH");
      }
    }
    ASSIGN_OR_RETURN(
        std::shared_ptr<Servable> servable,
        LoadServable(model, std::string(kOnlyVersion), teams[i],
                     topology.memory_limit_bytes(), parts->pool.get(),
                     &parts->metrics, [&progress, &model](double done) {
                       if (progress) progress(model.path, done);
                     }));
    parts->manager.Add(std::move(servable));
  }
  parts->manager.SetState(ServerState::kReady);

  ASSIGN_OR_RETURN(parts->http, HttpServer::Start(settings.server,
                                                  {.manager = &parts->manager,
                                                   .pool = parts->pool.get(),
                                                   .metrics = &parts->metrics,
                                                   .auth = parts->auth.get()}));
  if (settings.server.grpc_port >= 0) {
    ASSIGN_OR_RETURN(
        parts->grpc,
        GrpcServer::Start(settings.server, {.manager = &parts->manager,
                                            .pool = parts->pool.get(),
                                            .metrics = &parts->metrics,
                                            .auth = parts->auth.get()}));
  }
  return std::unique_ptr<App>(new App(std::move(parts)));
}

int App::http_port() const { return parts_->http->port(); }

int App::grpc_port() const {
  return parts_->grpc == nullptr ? -1 : parts_->grpc->port();
}

bool App::Shutdown() {
  const auto deadline =
      std::chrono::steady_clock::now() +
      std::chrono::milliseconds(parts_->settings.server.shutdown_timeout_ms);
  parts_->manager.SetState(ServerState::kDraining);
  if (parts_->grpc != nullptr) parts_->grpc->StopAccepting();
  LogInfo("draining",
          {{"timeout_ms", parts_->settings.server.shutdown_timeout_ms}});
  // HTTP goes on answering 503 meanwhile, so that probes and balancers learn
  // why.
  const bool clean = parts_->manager.Drain(deadline);
  parts_->http->StopAccepting();
  // What ended must still reach its client: a moment beyond the deadline.
  const auto last = std::max(
      deadline, std::chrono::steady_clock::now() + std::chrono::seconds(1));
  parts_->http->Stop(last);
  if (parts_->grpc != nullptr) parts_->grpc->Stop(last);
  LogInfo("stopped", {{"clean", clean}});
  return clean;
}

}  // namespace millrace::server
