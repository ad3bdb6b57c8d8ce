// Triton's extensions of KServe v2 that manage models: the repository's
// index, loading and unloading, configuration and statistics.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "config/base/json.h"
#include "handlers/json_fields.h"
#include "server/http/message.h"
#include "server/http/pool_work.h"
#include "server/http/routes.h"
#include "server/lifecycle/control.h"
#include "server/lifecycle/placement.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

// A body may be left out; then nothing is asked for.
StatusOr<Json> ReadOptionalBody(Exchange& exchange) {
  const Exchange::Body bytes = exchange.TakeBody();
  if (bytes.text.empty()) return Json::object();
  ASSIGN_OR_RETURN(Json body, ParseJson(bytes.text));
  if (!body.is_object()) {
    return InvalidArgument("the body must be a JSON object, not " +
                           handlers::Shown(body));
  }
  return body;
}

Status Index(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadOptionalBody(*exchange));
  bool ready_only = false;
  for (const auto& [key, value] : body.items()) {
    if (key != "ready" || !value.is_boolean()) {
      return InvalidArgument(
                 "the body may hold \"ready\": true or false, not '" + key +
                 "': " + handlers::Shown(value))
          .At(key);
    }
    ready_only = value.get<bool>();
  }
  Json list = Json::array();
  for (const VersionStatus& each : site.services.repository->Index()) {
    if (ready_only && each.state != VersionState::kReady) continue;
    Json entry = {{"name", each.name}};
    if (!each.version.empty()) entry["version"] = each.version;
    if (!each.version.empty() || each.state != VersionState::kUnknown) {
      entry["state"] = std::string(VersionStateName(each.state));
    }
    if (!each.reason.empty()) entry["reason"] = each.reason;
    list.push_back(std::move(entry));
  }
  exchange->Send(JsonResponse(200, DumpJson(list)));
  return OkStatus();
}

Repository::Done AnswerTo(const std::shared_ptr<Exchange>& exchange) {
  return [exchange](const Status& status) {
    exchange->Send(status.ok() ? JsonResponse(200, "")
                               : OipErrorResponse(status));
  };
}

StatusOr<Json> ReadParameters(Exchange& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadOptionalBody(exchange));
  Json parameters = Json::object();
  for (const auto& [key, value] : body.items()) {
    if (key != "parameters" || !value.is_object()) {
      return InvalidArgument(
                 "the body may hold \"parameters\": an object, not '" + key +
                 "': " + handlers::Shown(value))
          .At(key);
    }
    parameters = value;
  }
  return parameters;
}

Status Load(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json parameters, ReadParameters(*exchange));
  std::string config;
  for (const auto& [key, value] : parameters.items()) {
    RETURN_IF_ERROR(CheckLoadParameter(key));
    if (!value.is_string()) {
      return InvalidArgument("config must be JSON in a string, not " +
                             handlers::Shown(value))
          .At("config");
    }
    config = value.get<std::string>();
  }
  site.services.repository->RequestLoad(exchange->params().front(), config,
                                        AnswerTo(exchange));
  return OkStatus();
}

Status Unload(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json parameters, ReadParameters(*exchange));
  bool with_members = false;
  for (const auto& [key, value] : parameters.items()) {
    RETURN_IF_ERROR(CheckUnloadParameter(key));
    if (!value.is_boolean()) {
      return InvalidArgument(key + " must be true or false, not " +
                             handlers::Shown(value))
          .At(key);
    }
    with_members = value.get<bool>();
  }
  RequestUnload(site.services.repository, exchange->params().front(),
                with_members, AnswerTo(exchange));
  return OkStatus();
}

StatusOr<std::shared_ptr<Servable>> FindModel(const Site& site,
                                              const Exchange& exchange) {
  const std::vector<std::string>& params = exchange.params();
  return site.services.repository->Find(params[0],
                                        params.size() > 1 ? params[1] : "");
}

Json CountedJson(const CountedNs& counted) {
  return Json{{"count", counted.count}, {"ns", counted.ns}};
}

Json StatisticsJson(const Servable& servable, const ModelStatistics& stats) {
  Json batches = Json::array();
  for (const ModelStatistics::OfBatch& batch : stats.batches) {
    batches.push_back({{"batch_size", batch.rows},
                       {"compute_input", CountedJson(batch.compute_input)},
                       {"compute_infer", CountedJson(batch.compute_infer)},
                       {"compute_output", CountedJson(batch.compute_output)}});
  }
  Json told{{"name", servable.id()},
            {"version", servable.version()},
            {"last_inference", stats.last_inference_ms},
            {"inference_count", stats.inference_count},
            {"execution_count", stats.execution_count},
            {"inference_stats",
             {{"success", CountedJson(stats.success)},
              {"fail", CountedJson(stats.fail)},
              {"queue", CountedJson(stats.queue)},
              {"compute_input", CountedJson(stats.compute_input)},
              {"compute_infer", CountedJson(stats.compute_infer)},
              {"compute_output", CountedJson(stats.compute_output)},
              {"cache_hit", CountedJson(stats.cache_hit)},
              {"cache_miss", CountedJson(stats.cache_miss)}}},
            {"response_stats", Json::object()},
            {"batch_stats", std::move(batches)},
            {"memory_usage", Json::array()}};
  // Not Triton's: who runs where.
  if (const auto* placed = dynamic_cast<const Placed*>(&servable)) {
    Json& instances = told["parameters"]["instances"] = Json::array();
    for (const InstancePlace& place : placed->places()) {
      instances.push_back(
          {{"cpus", place.cpus}, {"numa_nodes", place.numa_nodes}});
    }
  }
  return told;
}

}  // namespace

void ServeRepositoryIndex(const Site& site,
                          const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Index, OipErrorResponse);
}

void ServeRepositoryLoad(const Site& site,
                         const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Load, OipErrorResponse);
}

void ServeRepositoryUnload(const Site& site,
                           const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Unload, OipErrorResponse);
}

void ServeOipModelConfig(const Site& site,
                         const std::shared_ptr<Exchange>& exchange) {
  const auto servable = FindModel(site, *exchange);
  exchange->Send(servable.ok() ? JsonResponse(200, (*servable)->config_json())
                               : OipErrorResponse(servable.status()));
}

void ServeOipModelStats(const Site& site,
                        const std::shared_ptr<Exchange>& exchange) {
  const auto stats = CollectStatistics(
      *site.services.repository,
      exchange->params().empty() ? "" : exchange->params()[0],
      exchange->params().size() > 1 ? exchange->params()[1] : "");
  if (!stats.ok()) {
    exchange->Send(OipErrorResponse(stats.status()));
    return;
  }
  Json list = Json::array();
  for (const auto& [servable, counts] : *stats) {
    list.push_back(StatisticsJson(*servable, counts));
  }
  exchange->Send(
      JsonResponse(200, DumpJson(Json{{"model_stats", std::move(list)}})));
}

}  // namespace millrace::server::http
