// TorchServe takes any method for predictions and probes, so its tables have a
// row for each.
#include "server/http/torchserve_routes.h"

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "config/base/json.h"
#include "server/http/routes.h"
#include "server/http/torchserve_form.h"
#include "server/version.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

constexpr bool kPublic = true;
constexpr bool kTakesBytes = true;

constexpr Route Predictions(std::string_view method) {
  return {method,
          "/predictions/{model}",
          ServeTorchPredictions,
          "TorchServe: predicts with a model, or NAME/VERSION",
          "Any",
          "Any",
          !kPublic,
          kTakesBytes};
}
constexpr Route Explanations(std::string_view method) {
  return {method,
          "/explanations/{model}",
          ServeTorchExplanations,
          "TorchServe: a handler in Python explains",
          "Any",
          "Any",
          !kPublic,
          kTakesBytes};
}
constexpr Route WorkflowPredictions(std::string_view method) {
  return {method,
          "/wfpredict/{workflow}",
          ServeTorchWorkflow,
          "TorchServe: predicts with a workflow",
          "Any",
          "Any",
          !kPublic,
          kTakesBytes};
}
constexpr Route Ping(std::string_view method) {
  return {method, "/ping", ServeTorchPing, "TorchServe: whether models serve",
          "",     "Any",   kPublic,        kTakesBytes};
}
constexpr Route Api(std::string_view method, std::string_view path,
                    RouteFunction serve) {
  return {method, path, serve, "TorchServe: this API", "", "Any", kPublic};
}

constexpr Route kInference[] = {
    Api("OPTIONS", "/", ServeTorchInferenceApi),
    Api("GET", "/api-description", ServeTorchInferenceApi),
    Api("OPTIONS", "/predictions/{model}", ServeTorchModelApi),
    Ping("GET"),
    Ping("POST"),
    Ping("PUT"),
    Ping("DELETE"),
    Predictions("POST"),
    Predictions("PUT"),
    Predictions("GET"),
    Predictions("DELETE"),
    Explanations("POST"),
    Explanations("PUT"),
    Explanations("GET"),
    {"POST", "/invocations", ServeTorchInvocations,
     "SageMaker: predicts with the only model", "Any", "Any", !kPublic,
     kTakesBytes},
    {"POST", "/v1/models/{model}", ServeTorchInstances,
     "KServe v1: predicts or explains (NAME:predict, NAME:explain)", "Any",
     "Any", !kPublic, kTakesBytes},
    {"POST", "/v2/models/{model}/explain", ServeTorchExplainedTensors,
     "KServe v2: a handler in Python explains", "Any", "Any", !kPublic,
     kTakesBytes},
    WorkflowPredictions("POST"),
    WorkflowPredictions("PUT"),
    WorkflowPredictions("GET"),
};

constexpr Route kManagement[] = {
    Api("OPTIONS", "/", ServeTorchManagementApi),
    Api("GET", "/api-description", ServeTorchManagementApi),
    {"GET", "/models", ServeTorchModels, "TorchServe: registered models", "",
     "Any"},
    {"GET", "/models/", ServeTorchModels, "TorchServe: registered models", "",
     "Any"},
    {"POST", "/models", ServeTorchRegister,
     "TorchServe: registers an archive (?url=NAME.mar)", "", "Any", !kPublic,
     kTakesBytes},
    {"GET", "/models/{model}", ServeTorchDescribe,
     "TorchServe: a model, NAME/VERSION or NAME/all", "", "Any"},
    {"PUT", "/models/{model}", ServeTorchScale,
     "TorchServe: workers of a model; NAME/VERSION/set-default", "", "Any"},
    {"DELETE", "/models/{model}", ServeTorchUnregister,
     "TorchServe: unregisters a model", "", "Any"},
    // Its own check: the key that renews others is good for nothing else.
    {"GET", "/token", ServeTorchToken,
     "TorchServe: a new key for inference or management (?type=)", "", "Any",
     kPublic},
    {"GET", "/workflows", ServeTorchWorkflows,
     "TorchServe: registered workflows", "", "Any"},
    {"POST", "/workflows", ServeTorchWorkflowRegister,
     "TorchServe: registers a workflow (?url=NAME.war)", "", "Any", !kPublic,
     kTakesBytes},
    {"GET", "/workflows/{workflow}", ServeTorchWorkflowDescribe,
     "TorchServe: a workflow", "", "Any"},
    {"DELETE", "/workflows/{workflow}", ServeTorchWorkflowUnregister,
     "TorchServe: unregisters a workflow and its models", "", "Any"},
};

constexpr Route kMetrics[] = {
    Api("OPTIONS", "/", ServeTorchMetricsApi),
    {"GET", "/metrics", ServeMetrics,
     "Metrics in Prometheus' text format (?name[]=)", "", "", kPublic},
    {"GET", "/health", ServeHealth, "Whether to send requests here", "",
     "Health", kPublic},
};

struct Described {
  std::string_view path, method, id;
};
constexpr Described kMetricsPaths[] = {
    {"/", "options", "apiDescription"},
    {"/metrics", "get", "metrics"},
};
constexpr Described kInferencePaths[] = {
    {"/", "options", "apiDescription"},
    {"/api-description", "get", "api-description"},
    {"/metrics", "get", "metrics"},
    {"/ping", "get", "ping"},
    {"/predictions/{model_name}", "post", "predictions"},
    {"/predictions/{model_name}/{model_version}", "post",
     "version_predictions"},
    {"/v1/models/{model_name}:predict", "post", "predict"},
    {"/v2/models/{model_name}/infer", "post", "infer"},
};
constexpr Described kManagementPaths[] = {
    {"/", "options", "apiDescription"},
    {"/api-description", "get", "api-description"},
    {"/metrics", "get", "metrics"},
    {"/models", "get", "listModels"},
    {"/models", "post", "registerModel"},
    {"/models/{model_name}", "get", "describeModel"},
    {"/models/{model_name}", "put", "setAutoScale"},
    {"/models/{model_name}", "delete", "unregisterModel"},
    {"/models/{model_name}/{model_version}", "get", "version_describeModel"},
    {"/models/{model_name}/{model_version}", "put", "version_setAutoScale"},
    {"/models/{model_name}/{model_version}", "delete",
     "version_unregisterModel"},
    {"/models/{model_name}/{model_version}/set-default", "put", "setDefault"},
};

std::string Description(std::span<const Described> paths) {
  Json all = Json::object();
  for (const Described& each : paths) {
    Json parameters = Json::array();
    for (const std::string_view name : {"model_name", "model_version"}) {
      if (each.path.find("{" + std::string(name) + "}") ==
          std::string_view::npos) {
        continue;
      }
      parameters.push_back({{"in", "path"},
                            {"name", std::string(name)},
                            {"required", true},
                            {"schema", {{"type", "string"}}}});
    }
    all[std::string(each.path)][std::string(each.method)] = {
        {"operationId", std::string(each.id)},
        {"parameters", std::move(parameters)},
        {"responses",
         {{"200", {{"description", "OK"}}},
          {"default", {{"description", "{code, type, message}"}}}}}};
  }
  return DumpJson(Json{{"openapi", "3.0.1"},
                       {"info",
                        {{"title", "TorchServe APIs, by Millrace"},
                         {"version", std::string(Version())}}},
                       {"paths", std::move(all)}});
}

}  // namespace

std::span<const Route> TorchServeInferenceRoutes() { return kInference; }
std::span<const Route> TorchServeManagementRoutes() { return kManagement; }
std::span<const Route> TorchServeMetricsRoutes() { return kMetrics; }

void ServeTorchInferenceApi(const Site&,
                            const std::shared_ptr<Exchange>& exchange) {
  exchange->Send(TorchServeResponse(200, Description(kInferencePaths)));
}

void ServeTorchManagementApi(const Site&,
                             const std::shared_ptr<Exchange>& exchange) {
  exchange->Send(TorchServeResponse(200, Description(kManagementPaths)));
}

void ServeTorchMetricsApi(const Site&,
                          const std::shared_ptr<Exchange>& exchange) {
  exchange->Send(TorchServeResponse(200, Description(kMetricsPaths)));
}

void ServeTorchModelApi(const Site&,
                        const std::shared_ptr<Exchange>& exchange) {
  exchange->Send(TorchServeResponse(
      200, Description(std::span(kInferencePaths).subspan(4))));
}

}  // namespace millrace::server::http
