// OpenAI's list of models: those that generate text. A reader would guess one
// entry a model: each further name under which it is served has one of its own,
// with `root` naming the model.
#include <nlohmann/json.hpp>
#include <string>

#include "config/base/json.h"
#include "server/http/message.h"
#include "server/http/routes.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

// Of a model that generates text.
Json ModelEntry(const Servable& servable, const std::string& name) {
  const TextFacts& text = *servable.text_facts();
  return Json{{"id", name},
              {"object", "model"},
              {"created", servable.facts().created_unix},
              {"owned_by", "millrace"},
              {"root", servable.id()},
              {"parent", nullptr},
              {"max_model_len", text.max_model_len},
              {"meta",
               {{"n_ctx_train", text.trained_context},
                {"n_params", text.num_parameters},
                {"size", text.file_bytes}}}};
}

// By id or further name; null if there is none. Listings work while the server
// loads or drains, so no handle is borrowed.
std::shared_ptr<Servable> FindServable(const Site& site,
                                       const std::string& name) {
  for (std::shared_ptr<Servable>& servable : site.services.manager->List()) {
    if (servable->IsNamed(name)) return servable;
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
    if (servable->text_facts() == nullptr) continue;
    data.push_back(ModelEntry(*servable, servable->id()));
    for (const std::string& alias : servable->facts().aliases) {
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
  if (const auto text = servable->ForText(); !text.ok()) {
    exchange->Send(ErrorResponse(text.status()));
    return;
  }
  exchange->Send(JsonResponse(200, DumpJson(ModelEntry(*servable, name))));
}

}  // namespace millrace::server::http
