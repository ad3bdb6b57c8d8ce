// Which models are here: OpenAI's list and the Open Inference Protocol's
// metadata. A reader would guess one entry a model: each further name under
// which it is served has one of its own, with `root` naming the model.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "config/base/json.h"
#include "server/http/message.h"
#include "server/http/routes.h"
#include "server/version.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

Json ModelEntry(const Servable& servable, const std::string& name) {
  return Json{{"id", name},
              {"object", "model"},
              {"created", servable.created_unix},
              {"owned_by", "millrace"},
              {"root", servable.id},
              {"parent", nullptr},
              {"max_model_len", servable.max_model_len},
              {"meta",
               {{"n_ctx_train", servable.info.trained_context},
                {"n_params", servable.info.num_parameters},
                {"size", servable.info.file_bytes}}}};
}

// By id or further name; null if there is none. Listings work while the server
// loads or drains, so no handle is borrowed.
std::shared_ptr<Servable> FindServable(const Site& site,
                                       const std::string& name) {
  for (std::shared_ptr<Servable>& servable : site.services.manager->List()) {
    const auto& aliases = servable->aliases;
    if (servable->id == name ||
        std::find(aliases.begin(), aliases.end(), name) != aliases.end()) {
      return servable;
    }
  }
  return nullptr;
}

Status NoSuchModel(const std::string& name) {
  return NotFound("the model '" + name +
                  "' does not exist here; GET /v1/models lists what does")
      .At("model")
      .Because("model_not_found");
}

}  // namespace

void ServeModels(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  Json data = Json::array();
  for (const auto& servable : site.services.manager->List()) {
    data.push_back(ModelEntry(*servable, servable->id));
    for (const std::string& alias : servable->aliases) {
      data.push_back(ModelEntry(*servable, alias));
    }
  }
  exchange->Send(JsonResponse(
      200, DumpJson(Json{{"object", "list"}, {"data", std::move(data)}})));
}

void ServeModel(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  const std::string& name = exchange->params().front();
  const std::shared_ptr<Servable> servable = FindServable(site, name);
  if (servable == nullptr) {
    exchange->Send(ErrorResponse(NoSuchModel(name)));
    return;
  }
  exchange->Send(JsonResponse(200, DumpJson(ModelEntry(*servable, name))));
}

void ServeOipServer(const Site&, const std::shared_ptr<Exchange>& exchange) {
  exchange->Send(
      JsonResponse(200, DumpJson(Json{{"name", "millrace"},
                                      {"version", std::string(Version())},
                                      {"extensions", Json::array()}})));
}

void ServeOipModel(const Site& site,
                   const std::shared_ptr<Exchange>& exchange) {
  const std::string& name = exchange->params().front();
  const std::shared_ptr<Servable> servable = FindServable(site, name);
  if (servable == nullptr) {
    exchange->Send(OipErrorResponse(NoSuchModel(name)));
    return;
  }
  const auto tensor = [](const char* tensor_name, const char* datatype) {
    return Json{{"name", tensor_name},
                {"datatype", datatype},
                {"shape", Json::array({1})}};
  };
  exchange->Send(JsonResponse(
      200,
      DumpJson(Json{
          {"name", name},
          {"versions", Json::array({servable->version})},
          {"platform", "millrace_llm"},
          {"inputs",
           Json::array({tensor("text_input", "BYTES"), tensor("stream", "BOOL"),
                        tensor("sampling_parameters", "BYTES")})},
          {"outputs", Json::array({tensor("text_output", "BYTES")})}})));
}

void ServeOipModelReady(const Site& site,
                        const std::shared_ptr<Exchange>& exchange) {
  const std::string& name = exchange->params().front();
  if (FindServable(site, name) == nullptr) {
    exchange->Send(OipErrorResponse(NoSuchModel(name)));
    return;
  }
  const bool ready = site.services.manager->state() == ServerState::kReady;
  exchange->Send(JsonResponse(
      ready ? 200 : 503, DumpJson(Json{{"name", name}, {"ready", ready}})));
}

}  // namespace millrace::server::http
