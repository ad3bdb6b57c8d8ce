// OpenAI's list of models (Anthropic's is in anthropic_models.cc): those that
// generate text and, behind them, those that make vectors, scores or classes of
// texts. Each further name under which a model is served has an entry of its
// own, with `root` naming the model.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/base/json.h"
#include "config/task_settings.h"
#include "server/http/anthropic_models.h"
#include "server/http/message.h"
#include "server/http/pool_work.h"
#include "server/http/routes.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

// What requests get that leave sampling fields out.
Json SamplingJson(const models::GenerationDefaults& defaults) {
  Json fields = Json::object();
  for (const auto& [name, value] : models::NamedValues(defaults)) {
    fields[std::string(name)] = value;
  }
  if (defaults.top_k) fields["top_k"] = *defaults.top_k;
  return fields;
}

// Of a model that generates text.
Json ModelEntry(const Servable& servable, const std::string& name) {
  const TextFacts& text = *servable.text_facts();
  const std::string& parent = servable.facts().parent;
  return Json{{"id", name},
              {"object", "model"},
              {"created", servable.facts().created_unix},
              {"owned_by", "millrace"},
              // Of an adapter its files and its base, as in vLLM.
              {"root", parent.empty() ? servable.id() : servable.facts().path},
              {"parent", parent.empty() ? Json() : Json(parent)},
              {"max_model_len", text.max_model_len},
              {"default_sampling_params", SamplingJson(text.default_sampling)},
              {"meta",
               {{"n_ctx_train", text.trained_context},
                {"n_params", text.num_parameters},
                {"size", text.file_bytes}}}};
}

// Of a model with a task over texts, which its entry names: chats leave it out.
Json TaskEntry(const Servable& servable, const handlers::TextTaskFacts& facts,
               const std::string& name) {
  return Json{{"id", name},
              {"object", "model"},
              {"created", servable.facts().created_unix},
              {"owned_by", "millrace"},
              {"root", servable.id()},
              {"parent", nullptr},
              {"max_model_len", facts.max_tokens},
              {"task", config::TaskName(facts.kind)}};
}

// INVALID_ARGUMENT of a model that takes no texts.
StatusOr<Json> EntryOf(const Servable& servable, const std::string& name) {
  if (servable.text_facts() != nullptr) return ModelEntry(servable, name);
  const auto texts = servable.ForTexts();
  if (texts.ok()) return TaskEntry(servable, (*texts)->facts(), name);
  RETURN_IF_ERROR(servable.ForText().status());
  return texts.status();
}

}  // namespace

void ServeModels(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  if (IsAnthropic(exchange->request())) {
    return ServeAnthropicModels(site, exchange);
  }
  Json data = Json::array();
  Json others = Json::array();
  for (const auto& servable : site.services.repository->List()) {
    Json& list = servable->text_facts() != nullptr ? data : others;
    std::vector<std::string> names = servable->facts().aliases;
    names.insert(names.begin(), servable->id());
    for (const std::string& name : names) {
      if (name == kAnyName || !MayUse(*exchange, name)) continue;
      auto entry = EntryOf(*servable, name);
      if (entry.ok()) list.push_back(*std::move(entry));
    }
  }
  data.insert(data.end(), others.begin(), others.end());
  exchange->Send(JsonResponse(
      200, DumpJson(Json{{"object", "list"}, {"data", std::move(data)}})));
}

void ServeModel(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  if (IsAnthropic(exchange->request())) {
    return ServeAnthropicModel(site, exchange);
  }
  const std::string& name = exchange->params().front();
  // No handle is borrowed: listings work while the server loads or drains.
  const auto servable = site.services.repository->Find(name);
  Status refused = exchange->caller()->tenant->MayUse(name);
  if (refused.ok()) refused = servable.status();
  if (!refused.ok()) return exchange->Send(ErrorResponse(refused));
  const auto entry = EntryOf(**servable, name);
  exchange->Send(entry.ok() ? JsonResponse(200, DumpJson(*entry))
                            : ErrorResponse(entry.status()));
}

}  // namespace millrace::server::http
