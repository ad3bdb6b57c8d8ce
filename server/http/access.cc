#include "server/http/access.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace millrace::server::http {
namespace {

// The first row whose text the pattern begins with, and whose method it has if
// the row names one.
struct Rule {
  std::string_view prefix;
  Access access;
  std::string_view method = {};
};
constexpr Rule kRules[] = {
    {"/metrics", Access::kScrape},
    {"/v2/models/stats", Access::kMetrics},
    {"/v2/models/{id}/stats", Access::kMetrics},
    {"/v2/models/{id}/drift", Access::kMetrics},
    {"/v2/models/{id}/versions/{version}/drift", Access::kMetrics},
    {"/v2/models/{id}/versions/{version}/stats", Access::kMetrics},
    {"/v2/models/{id}/sessions", Access::kInfer},
    {"/v2/models/{id}/versions/{version}/sessions", Access::kInfer},
    {"/v2/repository/", Access::kManage},
    {"/v1/load_lora_adapter", Access::kManage},
    {"/v1/unload_lora_adapter", Access::kManage},
    {"/lora-adapters", Access::kManage, "POST"},
    {"/v2/logging", Access::kManage},
    {"/v2/trace/", Access::kManage},
    {"/v2/models/{id}/trace/", Access::kManage},
    {"/debug", Access::kManage},
    // TorchServe's
    {"/models", Access::kManage},
    {"/workflows", Access::kManage},
    {"/predictions/", Access::kInfer},
    {"/explanations/", Access::kInfer},
    {"/wfpredict/", Access::kInfer},
    // What models were asked and said, for GET, too.
    {"/v1/responses", Access::kInfer},
    {"/v1/files", Access::kInfer},
    {"/v1/batches", Access::kInfer},
};

constexpr std::string_view kWhenFull[] = {
    "/metrics",        "/health",
    "/health/live",    "/health/ready",
    "/v2/health/live", "/v2/health/ready",
    "/v1/health",      "/ping"};  // TorchServe's

}  // namespace

bool AnsweredWhenFull(std::string_view method, std::string_view target) {
  if (method != "GET" && method != "HEAD") return false;
  const std::string_view path = target.substr(0, target.find('?'));
  return std::ranges::find(kWhenFull, path) != std::end(kWhenFull);
}

Access AccessOf(const Route& route) {
  if (route.method == "OPTIONS") return Access::kPublic;  // describes routes
  for (const Rule& rule : kRules) {
    if (route.pattern.starts_with(rule.prefix) &&
        (rule.method.empty() || rule.method == route.method)) {
      return rule.access;
    }
  }
  if (route.is_public) return Access::kPublic;
  return route.method == "POST" ? Access::kInfer : Access::kAnyKey;
}

}  // namespace millrace::server::http
