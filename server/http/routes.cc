// The two tables of routes. Probes and /metrics need no key, as with other
// model servers.
#include "server/http/routes.h"

#include "server/http/router.h"

namespace millrace::server::http {
namespace {

constexpr bool kPublic = true;
constexpr bool kTakesBytes = true;

constexpr Route kServing[] = {
    {"POST", "/v1/chat/completions", ServeChatCompletions},
    {"POST", "/v1/completions", ServeCompletions},
    {"GET", "/v1/models", ServeModels},
    {"GET", "/v1/models/{id}", ServeModel},
    {"POST", "/tokenize", ServeTokenize},
    {"POST", "/detokenize", ServeDetokenize},
    {"POST", "/apply-template", ServeApplyTemplate},
    {"GET", "/health", ServeHealth, kPublic},
    {"GET", "/health/live", ServeLive, kPublic},
    {"GET", "/health/ready", ServeReady, kPublic},
    {"GET", "/v2/health/live", ServeLive, kPublic},
    {"GET", "/v2/health/ready", ServeReady, kPublic},
    {"GET", "/version", ServeVersion, kPublic},
    {"GET", "/metrics", ServeMetrics, kPublic},
    {"GET", "/v2", ServeOipServer},
    {"GET", "/v2/models", ServeOipModels},
    {"POST", "/v2/repository/index", ServeRepositoryIndex, !kPublic,
     kTakesBytes},
    {"POST", "/v2/repository/models/{id}/load", ServeRepositoryLoad, !kPublic,
     kTakesBytes},
    {"POST", "/v2/repository/models/{id}/unload", ServeRepositoryUnload,
     !kPublic, kTakesBytes},
    {"GET", "/v2/models/stats", ServeOipModelStats},
    {"GET", "/v2/models/{id}/versions/{version}/config", ServeOipModelConfig},
    {"GET", "/v2/models/{id}/versions/{version}/stats", ServeOipModelStats},
    {"GET", "/v2/models/{id}/config", ServeOipModelConfig},
    {"GET", "/v2/models/{id}/stats", ServeOipModelStats},
    {"GET", "/v2/models/{id}/versions/{version}/ready", ServeOipModelReady},
    {"POST", "/v2/models/{id}/versions/{version}/infer", ServeOipInfer,
     !kPublic, kTakesBytes, GuardOipInfer},
    {"GET", "/v2/models/{id}/versions/{version}", ServeOipModel},
    {"GET", "/v2/models/{id}/ready", ServeOipModelReady},
    {"POST", "/v2/models/{id}/infer", ServeOipInfer, !kPublic, kTakesBytes,
     GuardOipInfer},
    {"GET", "/v2/models/{id}", ServeOipModel},
};

constexpr Route kMetrics[] = {
    {"GET", "/metrics", ServeMetrics, kPublic},
    {"GET", "/health", ServeHealth, kPublic},
};

}  // namespace

std::span<const Route> ServingRoutes() { return kServing; }
std::span<const Route> MetricsRoutes() { return kMetrics; }

}  // namespace millrace::server::http
