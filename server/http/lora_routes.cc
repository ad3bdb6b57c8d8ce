// vLLM's routes to load and unload LoRA adapters while the server runs. Each
// adapter is a model of its own name.
// Source: docs.vllm.ai, "LoRA Adapters", "Dynamically serving LoRA adapters".
#include <nlohmann/json.hpp>
#include <string>

#include "handlers/json_fields.h"
#include "server/http/message.h"
#include "server/http/pool_work.h"
#include "server/http/routes.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

StatusOr<std::string> ReadName(const Json& body, const char* field) {
  ASSIGN_OR_RETURN(const auto text, handlers::ReadString(body, field));
  if (!text || text->empty() || text->size() > 4096) {
    return InvalidArgument(std::string(field) +
                           " is missing; send a string of at most 4096 bytes")
        .At(field);
  }
  return *text;
}

Repository::Done AnswerTo(const std::shared_ptr<Exchange>& exchange,
                          const std::string& sentence) {
  return [exchange, sentence](const Status& status) {
    if (!status.ok()) return exchange->Send(ErrorResponse(status));
    HttpResponse response;
    response.status = 200;
    response.content_type = "text/plain; charset=utf-8";
    response.body = sentence;
    exchange->Send(std::move(response));
  };
}

Status Load(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  AdapterPlan plan;
  ASSIGN_OR_RETURN(plan.name, ReadName(body, "lora_name"));
  ASSIGN_OR_RETURN(plan.path, ReadName(body, "lora_path"));
  ASSIGN_OR_RETURN(const auto base,
                   handlers::ReadString(body, "base_model_name"));
  plan.base = base.value_or("");
  ASSIGN_OR_RETURN(const auto in_place,
                   handlers::ReadBool(body, "load_inplace"));
  plan.in_place = in_place.value_or(false);
  site.services.repository->RequestLoadAdapter(
      plan, AnswerTo(exchange, "Success: LoRA adapter '" + plan.name +
                                   "' added successfully."));
  return OkStatus();
}

Status Unload(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  ASSIGN_OR_RETURN(const std::string name, ReadName(body, "lora_name"));
  site.services.repository->RequestUnloadAdapter(
      name, AnswerTo(exchange, "Success: LoRA adapter '" + name +
                                   "' removed successfully."));
  return OkStatus();
}

}  // namespace

void ServeLoadLora(const Site& site,
                   const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Load);
}

void ServeUnloadLora(const Site& site,
                     const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Unload);
}

}  // namespace millrace::server::http
