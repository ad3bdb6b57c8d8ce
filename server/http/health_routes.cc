// Probes, version and metrics: answered on the I/O thread, so that they work
// while everything else is busy. /health says whether to send requests here;
// /v2/health/live says whether the process lives.
#include <string>

#include "server/http/message.h"
#include "server/http/routes.h"
#include "server/version.h"

namespace millrace::server::http {
namespace {

std::string_view StateName(ServerState state) {
  switch (state) {
    case ServerState::kLoading:
      return "loading";
    case ServerState::kDraining:
      return "draining";
    case ServerState::kReady:
      break;
  }
  return "ok";
}

HttpResponse ReadyOrNot(const Site& site, std::string body) {
  const bool ready = site.services.repository->state() == ServerState::kReady;
  HttpResponse response = JsonResponse(ready ? 200 : 503, std::move(body));
  if (!ready) response.headers.emplace_back("Retry-After", "1");
  return response;
}

}  // namespace

void ServeHealth(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  const std::string_view name = StateName(site.services.repository->state());
  exchange->Send(
      ReadyOrNot(site, "{\"status\":\"" + std::string(name) + "\"}"));
}

void ServeLive(const Site&, const std::shared_ptr<Exchange>& exchange) {
  exchange->Send(JsonResponse(200, "{\"live\":true}"));
}

void ServeReady(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  const bool ready = site.services.repository->state() == ServerState::kReady;
  exchange->Send(
      ReadyOrNot(site, ready ? "{\"ready\":true}" : "{\"ready\":false}"));
}

void ServeVersion(const Site&, const std::shared_ptr<Exchange>& exchange) {
  exchange->Send(
      JsonResponse(200, "{\"version\":\"" + std::string(Version()) + "\"}"));
}

void ServeMetrics(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  if (site.services.metrics != nullptr) {
    site.observer.body_bytes.Set(
        static_cast<double>(site.body_bytes.load(std::memory_order_relaxed)));
    response.body = site.services.metrics->Text();
  }
  exchange->Send(std::move(response));
}

}  // namespace millrace::server::http
