// Triton's shared memory extension over REST
// (docs/protocol/extension_shared_memory.md). There is no CUDA memory: its
// status is an empty list.
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

std::string RegionOf(const Exchange& exchange) {
  return exchange.params().empty() ? "" : exchange.params()[0];
}

Status Register(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  SharedRegion region;
  region.name = RegionOf(*exchange);
  ASSIGN_OR_RETURN(const auto key, handlers::ReadString(body, "key"));
  ASSIGN_OR_RETURN(const auto bytes,
                   handlers::ReadInt(body, "byte_size", {.min = 0}));
  ASSIGN_OR_RETURN(const auto offset,
                   handlers::ReadInt(body, "offset", {.min = 0}));
  if (!key.has_value()) return InvalidArgument("key is missing").At("key");
  if (!bytes.has_value()) {
    return InvalidArgument("byte_size is missing").At("byte_size");
  }
  region.key = *key;
  region.byte_size = static_cast<uint64_t>(*bytes);
  region.offset = static_cast<uint64_t>(offset.value_or(0));
  RETURN_IF_ERROR(site.services.state->regions.Register(region));
  exchange->Send(JsonResponse(200, ""));
  return OkStatus();
}

Status RegisterCuda(const Site&, const std::shared_ptr<Exchange>&) {
  return InvalidArgument(
      "CUDA shared memory cannot be registered: this server computes on CPUs; "
      "use system shared memory");
}

}  // namespace

void ServeSharedMemoryStatus(const Site& site,
                             const std::shared_ptr<Exchange>& exchange) {
  const auto regions = site.services.state->regions.List(RegionOf(*exchange));
  if (!regions.ok()) {
    exchange->Send(OipErrorResponse(regions.status()));
    return;
  }
  Json list = Json::array();
  for (const SharedRegion& region : *regions) {
    list.push_back({{"name", region.name},
                    {"key", region.key},
                    {"offset", region.offset},
                    {"byte_size", region.byte_size}});
  }
  exchange->Send(JsonResponse(200, DumpJson(list)));
}

void ServeSharedMemoryRegister(const Site& site,
                               const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Register, OipErrorResponse);
}

void ServeSharedMemoryUnregister(const Site& site,
                                 const std::shared_ptr<Exchange>& exchange) {
  site.services.state->regions.Unregister(RegionOf(*exchange));
  exchange->Send(JsonResponse(200, ""));
}

void ServeCudaMemoryStatus(const Site&,
                           const std::shared_ptr<Exchange>& exchange) {
  exchange->Send(JsonResponse(200, "[]"));
}

void ServeCudaMemoryRegister(const Site& site,
                             const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, RegisterCuda, OipErrorResponse);
}

void ServeCudaMemoryUnregister(const Site&,
                               const std::shared_ptr<Exchange>& exchange) {
  exchange->Send(JsonResponse(200, ""));
}

}  // namespace millrace::server::http
