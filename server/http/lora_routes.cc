// vLLM's routes to load and unload LoRA adapters while the server runs, and
// llama.cpp's to list them and to change their scales. Each adapter is a model
// of its own name.
// Source: docs.vllm.ai, "LoRA Adapters", "Dynamically serving LoRA adapters";
// github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/base/json.h"
#include "handlers/json_fields.h"
#include "server/http/message.h"
#include "server/http/pool_work.h"
#include "server/http/routes.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMostScale = 100;

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

// Those that the client may use, in the order of their ids.
std::vector<std::shared_ptr<Servable>> AdaptersOf(const Site& site,
                                                  const Exchange& exchange) {
  std::vector<std::shared_ptr<Servable>> adapters;
  for (const auto& each : site.services.repository->List()) {
    if (each->facts().parent.empty() || !MayUse(exchange, each->id())) continue;
    adapters.push_back(each);
  }
  return adapters;
}

// [{"id": 0, "scale": 0.5}]: those that are not named get 0.
StatusOr<std::vector<double>> ReadScales(const Json& body, size_t count) {
  if (!body.is_array()) {
    return InvalidArgument(
        "the request must be a list such as [{\"id\": 0, \"scale\": 0.5}]");
  }
  std::vector<double> scales(count, 0.0);
  for (size_t i = 0; i < body.size(); ++i) {
    const std::string path = "[" + std::to_string(i) + "]";
    const Json* id = handlers::FindField(body[i], "id");
    const Json* scale = handlers::FindField(body[i], "scale");
    if (id == nullptr || scale == nullptr) {
      return InvalidArgument(path + " must have an id and a scale").At(path);
    }
    ASSIGN_OR_RETURN(const int64_t place, handlers::AsInt(*id, path + ".id"));
    if (place < 0 || place >= static_cast<int64_t>(count)) {
      return InvalidArgument(path + ".id is " + std::to_string(place) +
                             " but there are " + std::to_string(count) +
                             " adapters, counted from 0; see GET "
                             "/lora-adapters")
          .At(path + ".id");
    }
    ASSIGN_OR_RETURN(scales[static_cast<size_t>(place)],
                     handlers::AsNumber(*scale, path + ".scale",
                                        {.min = 0, .max = kMostScale}));
  }
  return scales;
}

Status SetScales(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  const Exchange::Body bytes = exchange->TakeBody();
  ASSIGN_OR_RETURN(const Json body, ParseJson(bytes.text));
  const auto adapters = AdaptersOf(site, *exchange);
  ASSIGN_OR_RETURN(const auto scales, ReadScales(body, adapters.size()));
  for (size_t i = 0; i < adapters.size(); ++i) {
    RETURN_IF_ERROR(adapters[i]->SetAdapterScale(scales[i]));
  }
  exchange->Send(JsonResponse(200, R"({"success":true})"));
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

void ServeLoraAdapters(const Site& site,
                       const std::shared_ptr<Exchange>& exchange) {
  Json list = Json::array();
  for (const auto& each : AdaptersOf(site, *exchange)) {
    list.push_back({{"id", list.size()},
                    {"name", each->id()},
                    {"path", each->facts().path},
                    {"scale", each->adapter_scale()}});
  }
  exchange->Send(JsonResponse(200, DumpJson(list)));
}

void ServeLoraScales(const Site& site,
                     const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, SetScales);
}

}  // namespace millrace::server::http
