#include "server/torchserve/management.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "config/base/json.h"
#include "config/base/log.h"
#include "config/base/mutex.h"
#include "config/base/utf8.h"
#include "server/tensor_json.h"
#include "server/torchserve/archive_download.h"
#include "server/torchserve/workflows.h"

namespace millrace::server::torchserve {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostListed = 100;
constexpr int64_t kFirstWorkerId = 9000;
constexpr std::string_view kUnderWay = "Processing worker updates...";

Json DescribeVersion(const Repository& repository, const Registered& model,
                     bool customized) {
  const StatusOr<std::shared_ptr<Servable>> serving =
      repository.Find(model.name, model.version);
  const bool serves = serving.ok() && model.min_workers > 0;
  Json entry = {
      {"modelName", model.name},
      {"modelVersion", model.version},
      {"modelUrl", model.url},
      {"runtime", "python"},
      {"minWorkers", model.min_workers},
      {"maxWorkers", model.max_workers},
      {"batchSize", model.batch_size},
      {"maxBatchDelay", model.max_batch_delay_ms},
      {"responseTimeout", model.response_timeout_s},
      {"startupTimeout", model.startup_timeout_s},
      {"deviceType", "cpu"},
      {"loadedAtStartup", model.at_start},
      {"workers", Json::array()},
  };
  const int64_t num_workers = serves ? (*serving)->instance_count() : 0;
  for (int64_t i = 0; i < num_workers; ++i) {
    entry["workers"].push_back({{"id", std::to_string(kFirstWorkerId + i)},
                                {"startTime", model.start_time},
                                {"status", "READY"},
                                {"memoryUsage", 0},
                                {"pid", static_cast<int64_t>(getpid())},
                                {"gpu", false},
                                {"gpuUsage", "N/A"}});
  }
  const int64_t pending = serves ? (*serving)->gate().in_flight() : 0;
  entry["jobQueueStatus"] = {
      {"remainingCapacity",
       std::max<int64_t>(model.job_queue_size - pending, 0)},
      {"pendingRequests", pending}};
  if (customized && serves) {
    if (const auto handler = (*serving)->ForTensors(); handler.ok()) {
      entry["customizedMetadata"] = {
          {"inputs", TensorSpecsJson((*handler)->inputs())},
          {"outputs", TensorSpecsJson((*handler)->outputs())}};
    }
  }
  return entry;
}

}  // namespace

Status CheckRuntime(std::string_view runtime) {
  for (const std::string_view known :
       {"PYTHON", "PYTHON3", "LSP", "python", "python3"}) {
    if (runtime == known) return OkStatus();
  }
  return InvalidArgument("Invalid RuntimeType value: " +
                         Shortened(runtime, 100));
}

Status Management::CheckEnabled() const {
  if (registry_.options().model_api_enabled) return OkStatus();
  return InvalidArgument(
             "Requested method is not allowed, please refer to API document; "
             "registering and unregistering needs --enable-model-api")
      .Because("method_not_allowed");
}

void Management::Loaded(const std::string& name,
                        std::chrono::duration<double> duration) const {
  MetricLog* const log = registry_.metric_log();
  if (log == nullptr) return;
  const auto versions = registry_.FindAll(name);
  if (!versions.ok()) return;  // it left meanwhile
  for (const Registered& each : *versions) {
    log->WorkersLoaded(name, each.version, each.min_workers, duration.count());
  }
}

void Management::Apply(const std::string& name, Repository::Done done) {
  MutexLock lock(registry_.deciding());
  if (registry_.IsWanted(name)) {
    repository_.RequestLoad(name, "", std::move(done));
  } else {
    repository_.RequestUnload(name, [done = std::move(done)](Status status) {
      // It was never loaded.
      done(status.code() == StatusCode::kNotFound ? OkStatus() : status);
    });
  }
}

std::string Management::List(int64_t limit, int64_t first,
                             const MayUse& may_use) const {
  if (limit < 0 || limit > kMostListed) limit = kMostListed;
  std::vector<Registered> all = registry_.List();
  std::erase_if(all, [&](const Registered& each) {
    // Functions of workflows have no archive.
    return each.url.empty() || !may_use(each.name);
  });
  const auto size = static_cast<int64_t>(all.size());
  first = std::max<int64_t>(first, 0);
  const int64_t begin = std::min(first, size);
  const int64_t end = std::min(begin + limit, size);
  Json body = Json::object();
  if (first < size && end - begin == limit) {
    body["nextPageToken"] = std::to_string(end);
  }
  body["models"] = Json::array();
  for (int64_t i = begin; i < end; ++i) {
    body["models"].push_back({{"modelName", all[static_cast<size_t>(i)].name},
                              {"modelUrl", all[static_cast<size_t>(i)].url}});
  }
  return DumpJson(body);
}

StatusOr<std::string> Management::Describe(const std::string& name,
                                           const std::string& version,
                                           bool customized) const {
  Json list = Json::array();
  if (version == "all") {
    ASSIGN_OR_RETURN(const auto models, registry_.FindAll(name));
    for (const Registered& model : models) {
      list.push_back(DescribeVersion(repository_, model, customized));
    }
  } else {
    ASSIGN_OR_RETURN(const Registered model, registry_.Find(name, version));
    list.push_back(DescribeVersion(repository_, model, customized));
  }
  return DumpJson(list);
}

void Management::Register(const RegisterRequest& request, bool wait,
                          Done done) {
  if (!IsArchiveAddress(request.url)) {
    const Status status = TryRegister(request, wait, done);
    if (!status.ok()) done(status);
    return;
  }
  if (const Status enabled = CheckEnabled(); !enabled.ok()) {
    return done(enabled);
  }
  RegisterRequest stoppable = request;
  stoppable.stop = stop_downloads_.get_token();
  downloads_.Post([this, request = std::move(stoppable), wait,
                   done] { return TryRegister(request, wait, done); },
                  [done](const Status& status) {
                    if (!status.ok()) done(status);
                  });
}

void Management::StopDownloads() {
  stop_downloads_.request_stop();
  if (workflows_ != nullptr) workflows_->StopDownloads();
  // What waits is refused in its turn, before it touches the repository.
  const auto nothing = [] { return OkStatus(); };
  while (downloads_.Wait(nothing).code() == StatusCode::kResourceExhausted) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  downloads_.Stop();
}

Status Management::TryRegister(const RegisterRequest& request, bool wait,
                               const Done& done) {
  RETURN_IF_ERROR(CheckEnabled());
  StatusOr<Registered> registered = registry_.Register(request);
  RETURN_IF_ERROR(AsOfAddress(request.url, registered.status()));
  const Registered model = *std::move(registered);
  const std::string about =
      "Model \"" + model.name + "\" Version: " + model.version +
      " registered with " + std::to_string(model.min_workers) +
      " initial workers";
  if (model.min_workers == 0) {
    done(Change{.text = about +
                        ". Use scale workers API to add workers for the "
                        "model."});
    return OkStatus();
  }
  if (!wait) done(Change{.is_done = false, .text = std::string(kUnderWay)});
  // `model` keeps the archive's files until the load has ended.
  const auto begun = std::chrono::steady_clock::now();
  Apply(model.name,
        [this, wait, about, model, begun, done](const Status& status) {
          // The status is of all versions, the repository knows of this one.
          const bool failed =
              !status.ok() && !repository_.Find(model.name, model.version).ok();
          if (failed) {
            // What cannot be loaded is not left behind.
            const bool removed = registry_.Discard(model);
            LogError("model not loaded", {{"model", model.name},
                                          {"removed", removed},
                                          {"error", status.message()}});
          } else if (MetricLog* const log = registry_.metric_log()) {
            const std::chrono::duration<double> duration =
                std::chrono::steady_clock::now() - begun;
            log->WorkersLoaded(model.name, model.version, model.min_workers,
                               duration.count());
          }
          if (!wait) return;
          done(failed ? StatusOr<Change>(status)
                      : StatusOr<Change>(Change{.text = about}));
        });
  return OkStatus();
}

void Management::Scale(const std::string& name, const std::string& version,
                       int64_t min_workers, int64_t max_workers, bool wait,
                       Done done) {
  const Status status =
      TryScale(name, version, min_workers, max_workers, wait, done);
  if (!status.ok()) done(status);
}

Status Management::TryScale(const std::string& name, const std::string& version,
                            int64_t min_workers, int64_t max_workers, bool wait,
                            const Done& done) {
  ASSIGN_OR_RETURN(const Registered before, registry_.Find(name, version));
  RETURN_IF_ERROR(
      registry_.Scale(name, before.version, min_workers, max_workers));
  std::string text = "Workers scaled to " + std::to_string(min_workers) +
                     " for model: " + name;
  if (!version.empty()) text += ", version: " + version;
  // With the answer the caller's request, and its strings, may be gone.
  if (!wait) done(Change{.is_done = false, .text = std::string(kUnderWay)});
  Apply(before.name, [this, wait, text, before, min_workers,
                      done](const Status& status) {
    // The status is of all versions, the repository knows of this one.
    const auto serving = repository_.Find(before.name, before.version);
    const bool scaled =
        min_workers == 0
            ? !serving.ok()
            : serving.ok() && (*serving)->HasInstances(min_workers);
    if (!status.ok() && !scaled) {
      const Status undone = registry_.Scale(
          before.name, before.version, before.min_workers, before.max_workers);
      LogError("workers not scaled", {{"model", before.name},
                                      {"undone", undone.ok()},
                                      {"error", status.message()}});
    }
    if (!wait) return;
    done(status.ok() || scaled ? StatusOr<Change>(Change{.text = text})
                               : StatusOr<Change>(status));
  });
  return OkStatus();
}

StatusOr<Change> Management::SetDefault(const std::string& name,
                                        const std::string& version) {
  RETURN_IF_ERROR(registry_.SetDefault(name, version));
  return Change{.text = "Default version successfully updated for model \"" +
                        name + "\" to \"" + version + "\""};
}

void Management::Unregister(const std::string& name, const std::string& version,
                            Done done) {
  if (const Status enabled = CheckEnabled(); !enabled.ok()) {
    return done(enabled);
  }
  const StatusOr<Registered> removed = registry_.Remove(name, version);
  if (!removed.ok()) return done(removed.status());
  Apply(removed->name, [removed = *removed, done](const Status& status) {
    if (!status.ok()) {
      LogWarning("model left with an error",
                 {{"model", removed.name}, {"error", status.message()}});
    }
    done(Change{.text = "Model \"" + removed.name + "\" unregistered"});
  });
}

}  // namespace millrace::server::torchserve
