// /v1/batches, as OpenAI's clients call it. What a batch does stands in
// server/batches.
#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "handlers/json_fields.h"
#include "server/http/batch_executor.h"
#include "server/http/batch_files.h"
#include "server/http/pool_work.h"
#include "server/http/routes.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kUsualPage = 20;
constexpr int64_t kMostPerPage = 100;
// Of OpenAI's API reference, "Metadata".
constexpr size_t kMostMetadata = 16;
constexpr size_t kMaxKeyBytes = 64;
constexpr size_t kMaxValueBytes = 512;

StatusOr<std::string> Needed(const Json& body, const char* name,
                             const char* what) {
  ASSIGN_OR_RETURN(const auto text, handlers::ReadString(body, name));
  if (text.has_value()) return *text;
  return InvalidArgument(std::string(name) + " is missing; send " + what)
      .At(name);
}

StatusOr<std::string> ReadMetadata(const Json& body) {
  ASSIGN_OR_RETURN(const Json* metadata,
                   handlers::ReadObject(body, "metadata"));
  if (metadata == nullptr) return std::string("null");
  if (metadata->size() > kMostMetadata) {
    return InvalidArgument("metadata has " + std::to_string(metadata->size()) +
                           " entries but may have " +
                           std::to_string(kMostMetadata))
        .At("metadata");
  }
  for (const auto& [key, value] : metadata->items()) {
    ASSIGN_OR_RETURN(const std::string text,
                     handlers::AsString(value, "metadata." + key));
    if (key.size() > kMaxKeyBytes || text.size() > kMaxValueBytes) {
      return InvalidArgument("metadata." + Shortened(key, kMaxKeyBytes) +
                             " is too long: keys have at most " +
                             std::to_string(kMaxKeyBytes) +
                             " bytes and values " +
                             std::to_string(kMaxValueBytes))
          .At("metadata");
    }
  }
  return DumpJson(*metadata);
}

Status Create(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(Batches* const batches, BatchesOf(site));
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  Batch wanted;
  wanted.tenant = TenantName(*exchange);
  ASSIGN_OR_RETURN(
      wanted.input_file_id,
      Needed(body, "input_file_id", "the id of a file with purpose batch"));
  ASSIGN_OR_RETURN(wanted.endpoint,
                   Needed(body, "endpoint", "/v1/chat/completions"));
  RETURN_IF_ERROR(CheckBatchEndpoint(wanted.endpoint));
  ASSIGN_OR_RETURN(wanted.completion_window,
                   Needed(body, "completion_window", "24h"));
  if (wanted.completion_window != "24h") {
    return InvalidArgument("completion_window is '" +
                           Shortened(wanted.completion_window, 100) +
                           "' but must be 24h")
        .At("completion_window");
  }
  ASSIGN_OR_RETURN(wanted.metadata, ReadMetadata(body));
  ASSIGN_OR_RETURN(const Json* expiry,
                   handlers::ReadObject(body, "output_expires_after"));
  if (expiry != nullptr) {
    ASSIGN_OR_RETURN(const auto anchor,
                     handlers::ReadString(*expiry, "anchor"));
    ASSIGN_OR_RETURN(const auto seconds, handlers::ReadInt(*expiry, "seconds"));
    ASSIGN_OR_RETURN(wanted.output_expires_after,
                     ReadExpiry(anchor.value_or("created_at"),
                                seconds.value_or(0), "output_expires_after"));
  }
  ASSIGN_OR_RETURN(const Batch made, batches->Create(std::move(wanted)));
  exchange->Send(JsonResponse(200, BatchJson(made)));
  return OkStatus();
}

Status List(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(Batches* const batches, BatchesOf(site));
  std::vector<ListItem> items;
  for (const Batch& batch : batches->List(TenantName(*exchange))) {
    items.push_back({batch.id, BatchJson(batch)});
  }
  ASSIGN_OR_RETURN(std::string page, PageJson(exchange->request().query, items,
                                              kUsualPage, kMostPerPage));
  exchange->Send(JsonResponse(200, std::move(page)));
  return OkStatus();
}

Status Retrieve(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(Batches* const batches, BatchesOf(site));
  ASSIGN_OR_RETURN(const Batch batch, batches->Find(exchange->params().front(),
                                                    TenantName(*exchange)));
  exchange->Send(JsonResponse(200, BatchJson(batch)));
  return OkStatus();
}

Status Cancel(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(Batches* const batches, BatchesOf(site));
  ASSIGN_OR_RETURN(
      const Batch batch,
      batches->Cancel(exchange->params().front(), TenantName(*exchange)));
  exchange->Send(JsonResponse(200, BatchJson(batch)));
  return OkStatus();
}

}  // namespace

void ServeCreateBatch(const Site& site,
                      const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Create);
}

void ServeBatches(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, List);
}

void ServeBatch(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Retrieve);
}

void ServeCancelBatch(const Site& site,
                      const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Cancel);
}

}  // namespace millrace::server::http
