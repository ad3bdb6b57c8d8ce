// TorchServe's management API. The registry says at once what shall serve; the
// repository brings it about on its own thread, which answers where the client
// waits (synchronous=true).
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "config/base/json.h"
#include "config/base/log.h"
#include "config/base/mutex.h"
#include "models/tensor/dtype.h"
#include "server/http/pool_work.h"
#include "server/http/torchserve_form.h"
#include "server/http/torchserve_routes.h"
#include "server/torchserve/registry.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;
using torchserve::Registered;
using torchserve::Registry;

constexpr int64_t kMostListed = 100;
constexpr int64_t kFirstWorkerId = 9000;

struct ModelPath {
  std::string name, version, rest;
};
ModelPath PathOf(const Exchange& exchange) {
  std::string_view path = exchange.params().front();
  const auto take = [&path] {
    const size_t slash = std::min(path.find('/'), path.size());
    std::string part(path.substr(0, slash));
    path.remove_prefix(std::min(slash + 1, path.size()));
    return part;
  };
  ModelPath found;
  found.name = take();
  found.version = take();
  found.rest = path;
  return found;
}

Status NoResource() {
  return NotFound(
             "Requested resource is not found, please refer to API document.")
      .Because("route_not_found");
}

// Makes the repository serve what the registry says of this model.
void Apply(const Site& site, const std::string& name, Repository::Done done) {
  Repository& repository = *site.services.repository;
  MutexLock lock(site.services.torchserve->deciding());
  if (site.services.torchserve->IsWanted(name)) {
    repository.RequestLoad(name, "", std::move(done));
  } else {
    repository.RequestUnload(name, [done = std::move(done)](Status status) {
      // It was never loaded.
      done(status.code() == StatusCode::kNotFound ? OkStatus() : status);
    });
  }
}

Status CheckModelApi(const Site& site) {
  if (site.services.torchserve->options().model_api_enabled) return OkStatus();
  return InvalidArgument(
             "Requested method is not allowed, please refer to API document; "
             "registering and unregistering wants --enable-model-api")
      .Because("method_not_allowed");
}

// ---- listing and describing ----

Status List(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Fields fields, ParseFields(exchange->request().query));
  ASSIGN_OR_RETURN(const auto given_limit, NumberField(fields, "limit"));
  ASSIGN_OR_RETURN(const auto given_token,
                   NumberField(fields, "next_page_token"));
  int64_t limit = given_limit.value_or(kMostListed);
  if (limit < 0 || limit > kMostListed) limit = kMostListed;
  const int64_t first = std::max<int64_t>(given_token.value_or(0), 0);
  std::vector<Registered> all = site.services.torchserve->List();
  std::erase_if(all, [&](const Registered& each) {
    return !MayUse(*exchange, each.name);
  });
  const auto size = static_cast<int64_t>(all.size());
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
  exchange->Send(TorchServeResponse(200, DumpJson(body)));
  return OkStatus();
}

Json TensorsJson(const std::vector<models::TensorSpec>& specs) {
  Json list = Json::array();
  for (const models::TensorSpec& spec : specs) {
    list.push_back({{"name", spec.name},
                    {"datatype", std::string(models::DTypeName(spec.dtype))},
                    {"shape", spec.dims}});
  }
  return list;
}

Json Describe(const Site& site, const Registered& model, bool customized) {
  const StatusOr<std::shared_ptr<Servable>> serving =
      site.services.repository->Find(model.name, model.version);
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
          {"inputs", TensorsJson((*handler)->inputs())},
          {"outputs", TensorsJson((*handler)->outputs())}};
    }
  }
  return entry;
}

Status DescribeModel(const Site& site,
                     const std::shared_ptr<Exchange>& exchange) {
  const ModelPath path = PathOf(*exchange);
  const Registry& registry = *site.services.torchserve;
  if (!path.rest.empty() && path.rest != "set-default") return NoResource();
  if (path.name.empty() || !MayUse(*exchange, path.name)) {
    return NotFound("Model not found: " + path.name);
  }
  ASSIGN_OR_RETURN(const Fields fields, ParseFields(exchange->request().query));
  const bool customized = BoolField(fields, "customized", false);
  Json list = Json::array();
  if (path.version == "all") {
    ASSIGN_OR_RETURN(const auto models, registry.FindAll(path.name));
    for (const Registered& model : models) {
      list.push_back(Describe(site, model, customized));
    }
  } else {
    ASSIGN_OR_RETURN(const Registered model,
                     registry.Find(path.name, path.version));
    list.push_back(Describe(site, model, customized));
  }
  exchange->Send(TorchServeResponse(200, DumpJson(list)));
  return OkStatus();
}

// ---- changes ----

StatusOr<torchserve::RegisterRequest> ReadRegistration(const Fields& fields) {
  torchserve::RegisterRequest request;
  const std::string* url = FindField(fields, "url");
  if (url == nullptr) return InvalidArgument("Parameter url is required.");
  request.url = *url;
  if (const auto* name = FindField(fields, "model_name")) {
    request.model_name = *name;
  }
  if (const auto* handler = FindField(fields, "handler")) {
    request.handler = *handler;
  }
  if (const auto* runtime = FindField(fields, "runtime")) {
    if (*runtime != "PYTHON" && *runtime != "PYTHON3" && *runtime != "LSP" &&
        *runtime != "python" && *runtime != "python3") {
      return InvalidArgument("Invalid RuntimeType value: " +
                             runtime->substr(0, 100));
    }
  }
  for (const auto& [name, value] :
       {std::pair{"batch_size", &request.batch_size},
        std::pair{"max_batch_delay", &request.max_batch_delay_ms},
        std::pair{"initial_workers", &request.initial_workers},
        std::pair{"response_timeout", &request.response_timeout_s},
        std::pair{"startup_timeout", &request.startup_timeout_s}}) {
    ASSIGN_OR_RETURN(*value, NumberField(fields, name));
  }
  return request;
}

Status Register(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  RETURN_IF_ERROR(CheckModelApi(site));
  ASSIGN_OR_RETURN(const Fields fields, ParseFields(exchange->request().query));
  ASSIGN_OR_RETURN(const torchserve::RegisterRequest request,
                   ReadRegistration(fields));
  Registry& registry = *site.services.torchserve;
  ASSIGN_OR_RETURN(const Registered model, registry.Register(request));
  const std::string about =
      "Model \"" + model.name + "\" Version: " + model.version +
      " registered with " + std::to_string(model.min_workers) +
      " initial workers";
  if (model.min_workers == 0) {
    exchange->Send(TorchServeStatus(
        200, about + ". Use scale workers API to add workers for the model."));
    return OkStatus();
  }
  const bool wait = BoolField(fields, "synchronous", true);
  if (!wait) {
    exchange->Send(TorchServeStatus(202, "Processing worker updates..."));
  }
  // `model` keeps the archive's files until the load has ended.
  Apply(site, model.name,
        [exchange, wait, about, model, &registry,
         repository = site.services.repository](const Status& status) {
          // The status is of all versions, the repository knows of this one.
          const bool failed =
              !status.ok() && !repository->Find(model.name, model.version).ok();
          if (failed) {
            // What cannot be loaded is not left behind.
            const bool removed = registry.Discard(model);
            LogError("model not loaded", {{"model", model.name},
                                          {"removed", removed},
                                          {"error", status.message()}});
          }
          if (!wait) return;
          exchange->Send(failed ? TorchServeErrorResponse(status)
                                : TorchServeStatus(200, about));
        });
  return OkStatus();
}

// What a caller may not use, it does not see either.
Status CheckMayUse(const Exchange& exchange, const std::string& name) {
  if (MayUse(exchange, name)) return OkStatus();
  return NotFound("Model not found: " + name);
}

Status SetDefault(const Site& site, const std::shared_ptr<Exchange>& exchange,
                  const ModelPath& path) {
  RETURN_IF_ERROR(
      site.services.torchserve->SetDefault(path.name, path.version));
  exchange->Send(TorchServeStatus(
      200, "Default version successfully updated for model \"" + path.name +
               "\" to \"" + path.version + "\""));
  return OkStatus();
}

Status Scale(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  const ModelPath path = PathOf(*exchange);
  RETURN_IF_ERROR(CheckMayUse(*exchange, path.name));
  if (path.rest == "set-default") return SetDefault(site, exchange, path);
  if (!path.rest.empty()) return NoResource();
  ASSIGN_OR_RETURN(const Fields fields, ParseFields(exchange->request().query));
  ASSIGN_OR_RETURN(const auto min_worker, NumberField(fields, "min_worker"));
  const int64_t least = min_worker.value_or(1);
  ASSIGN_OR_RETURN(const auto max_worker, NumberField(fields, "max_worker"));
  ASSIGN_OR_RETURN(const auto timeout, NumberField(fields, "timeout"));
  static_cast<void>(timeout);  // the last requests of an instance are awaited
  Registry& registry = *site.services.torchserve;
  ASSIGN_OR_RETURN(const Registered before,
                   registry.Find(path.name, path.version));
  RETURN_IF_ERROR(registry.Scale(path.name, before.version, least,
                                 max_worker.value_or(least)));
  const bool wait = BoolField(fields, "synchronous", false);
  if (!wait) {
    exchange->Send(TorchServeStatus(202, "Processing worker updates..."));
  }
  std::string text =
      "Workers scaled to " + std::to_string(least) + " for model: " + path.name;
  if (!path.version.empty()) text += ", version: " + path.version;
  Apply(site, path.name,
        [exchange, wait, text, before, &registry](const Status& status) {
          if (!status.ok()) {
            const Status undone =
                registry.Scale(before.name, before.version, before.min_workers,
                               before.max_workers);
            LogError("workers not scaled", {{"model", before.name},
                                            {"undone", undone.ok()},
                                            {"error", status.message()}});
          }
          if (!wait) return;
          exchange->Send(status.ok() ? TorchServeStatus(200, text)
                                     : TorchServeErrorResponse(status));
        });
  return OkStatus();
}

Status Unregister(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  RETURN_IF_ERROR(CheckModelApi(site));
  const ModelPath path = PathOf(*exchange);
  if (!path.rest.empty()) return NoResource();
  RETURN_IF_ERROR(CheckMayUse(*exchange, path.name));
  ASSIGN_OR_RETURN(const Registered removed,
                   site.services.torchserve->Remove(path.name, path.version));
  Apply(site, path.name, [exchange, removed](const Status& status) {
    if (!status.ok()) {
      LogWarning("model left with an error",
                 {{"model", removed.name}, {"error", status.message()}});
    }
    exchange->Send(
        TorchServeStatus(200, "Model \"" + removed.name + "\" unregistered"));
  });
  return OkStatus();
}

}  // namespace

void ServeTorchModels(const Site& site,
                      const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, List, TorchServeErrorResponse);
}
void ServeTorchRegister(const Site& site,
                        const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Register, TorchServeErrorResponse);
}
void ServeTorchDescribe(const Site& site,
                        const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, DescribeModel, TorchServeErrorResponse);
}
void ServeTorchScale(const Site& site,
                     const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Scale, TorchServeErrorResponse);
}
void ServeTorchUnregister(const Site& site,
                          const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Unregister, TorchServeErrorResponse);
}

}  // namespace millrace::server::http
