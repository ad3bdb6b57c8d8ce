// Probes, version and metrics: answered on the I/O thread, so that they work
// while everything else is busy. /health says whether to send requests here;
// /v2/health/live says whether the process lives.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/json.h"
#include "server/http/compressed.h"
#include "server/http/message.h"
#include "server/http/routes.h"
#include "server/http/torchserve_form.h"
#include "server/torchserve/metrics_text.h"
#include "server/version.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

// The Unix time at which this process started.
const std::string kProcessStart = std::to_string(std::time(nullptr));

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

// The state of a server that loads, for readers of a probe's body.
void AddLoading(const LoadProgress& progress, Json& body) {
  const LoadProgress::State state = progress.state();
  body["models_ready"] = state.num_ready;
  body["models_expected"] = state.num_expected;
  if (state.model.empty()) return;
  Json load = {{"model", state.model}};
  if (state.done >= 0) load["progress"] = std::round(state.done * 1e3) / 1e3;
  load["seconds"] = std::round(state.seconds * 1e3) / 1e3;
  body["loading"] = std::move(load);
}

// 200 when ready, else 503 with the state and how far loads are.
HttpResponse Readiness(const Site& site, Json body) {
  const Repository& repository = *site.services.repository;
  const ServerState state = repository.state();
  if (state == ServerState::kReady) return JsonResponse(200, DumpJson(body));
  body["status"] = std::string(StateName(state));
  int64_t seconds = 1;
  if (state == ServerState::kLoading && repository.progress() != nullptr) {
    AddLoading(*repository.progress(), body);
    seconds = (repository.progress()->TimeLeft().count() + 999) / 1000;
  }
  HttpResponse response = JsonResponse(503, DumpJson(body));
  response.headers.emplace_back("Retry-After", std::to_string(seconds));
  return response;
}

// "type;a=b;q=0.5" of a list, spaces aside.
struct MediaRange {
  std::string type;
  std::string version;
  double quality = 1;
};

MediaRange ReadMediaRange(std::string_view text) {
  std::string words;
  for (const char c : text) {
    if (c == ' ' || c == '\t' || c == '"') continue;
    words += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  MediaRange range;
  range.type = words.substr(0, words.find(';'));
  for (size_t at = words.find(';'); at != std::string::npos;) {
    const size_t next = words.find(';', at + 1);
    const std::string word = words.substr(at + 1, next - at - 1);
    if (word.starts_with("version=")) range.version = word.substr(8);
    if (word.starts_with("q=")) {
      std::from_chars(word.data() + 2, word.data() + word.size(),
                      range.quality);
    }
    at = next;
  }
  return range;
}

// Whether the Accept header names OpenMetrics 1.0.0 and likes plain text no
// better.
bool WantsOpenMetrics(std::string_view accept) {
  double open = 0, plain = 0;
  while (!accept.empty()) {
    const size_t comma = std::min(accept.find(','), accept.size());
    const MediaRange range = ReadMediaRange(accept.substr(0, comma));
    accept.remove_prefix(std::min(comma + 1, accept.size()));
    if (range.type == "application/openmetrics-text" &&
        (range.version.empty() || range.version == "1.0.0")) {
      open = std::max(open, range.quality);
    }
    if (range.type == "text/plain") plain = std::max(plain, range.quality);
  }
  return open > 0 && open >= plain;
}

// "name[]=Requests2XX&name[]=…", as Prometheus' params give them.
std::vector<std::string> NamesOfMetrics(std::string_view query) {
  std::vector<std::string> names;
  StatusOr<Fields> fields = ParseFields(query);
  if (!fields.ok()) return names;
  for (auto& [key, value] : *fields) {
    if (key == "name[]") names.push_back(std::move(value));
  }
  return names;
}

}  // namespace

void ServeHealth(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  exchange->Send(Readiness(site, Json{{"status", "ok"}}));
}

void ServeLive(const Site&, const std::shared_ptr<Exchange>& exchange) {
  exchange->Send(JsonResponse(200, "{\"live\":true}"));
}

void ServeReady(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  const bool ready = site.services.repository->state() == ServerState::kReady;
  exchange->Send(Readiness(site, Json{{"ready", ready}}));
}

void ServeVersion(const Site&, const std::shared_ptr<Exchange>& exchange) {
  exchange->Send(
      JsonResponse(200, "{\"version\":\"" + std::string(Version()) + "\"}"));
}

void ServeMetrics(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  HttpResponse response;
  const bool torchserve = site.services.torchserve != nullptr;
  std::vector<std::string> names;
  if (torchserve) names = NamesOfMetrics(exchange->request().query);
  const bool open =
      names.empty() && WantsOpenMetrics(exchange->request().Header("accept"));
  response.content_type =
      open ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
           : "text/plain; version=0.0.4; charset=utf-8";
  response.headers.emplace_back("Vary", "Accept");
  // As llama.cpp's server sends it.
  response.headers.emplace_back("Process-Start-Time-Unix", kProcessStart);
  if (site.services.metrics != nullptr) {
    site.observer.body_bytes.Set(
        static_cast<double>(site.body_bytes.load(std::memory_order_relaxed)));
    response.body = open ? site.services.metrics->OpenMetricsText()
                         : site.services.metrics->Text();
    if (torchserve && !open) {
      response.body = torchserve::MetricsText(response.body, names);
    }
  }
  // Here as well: it takes less time than the text did.
  Compress(exchange->request(), kLeastCompressedJson, response);
  exchange->Send(std::move(response));
}

}  // namespace millrace::server::http
