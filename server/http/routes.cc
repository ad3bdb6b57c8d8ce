// The two tables of routes. Probes and /metrics need no key, as with other
// model servers.
#include "server/http/routes.h"

#include "server/http/router.h"

namespace millrace::server::http {
namespace {

constexpr bool kPublic = true;
constexpr bool kTakesBytes = true;

constexpr Route kServing[] = {
    {"GET", "/", ServeFrontPage, "Routes and models, as text or HTML"},
    {"GET", "/openapi.json", ServeOpenApi, "This description", "", "Any"},
    {"POST", "/v1/chat/completions", ServeChatCompletions,
     "Completes a chat; whole or as server-sent events", "ChatRequest",
     "ChatCompletion"},
    {"POST", "/v1/completions", ServeCompletions,
     "Completes text; whole or as server-sent events", "CompletionRequest",
     "Completion"},
    {"GET", "/v1/models", ServeModels, "Models that generate text", "",
     "ModelList"},
    {"GET", "/v1/models/{id}", ServeModel, "One of them", "", "Model"},
    {"POST", "/tokenize", ServeTokenize, "Token ids of a text or a chat",
     "TokenizeRequest", "Tokens"},
    {"POST", "/detokenize", ServeDetokenize, "Text of token ids",
     "DetokenizeRequest", "Any"},
    {"POST", "/apply-template", ServeApplyTemplate,
     "The prompt that a chat becomes", "ChatRequest", "Any"},
    {"GET", "/health", ServeHealth, "Whether to send requests here", "",
     "Health", kPublic},
    {"GET", "/health/live", ServeLive, "Whether the process lives", "", "Any",
     kPublic},
    {"GET", "/health/ready", ServeReady, "Whether to send requests here", "",
     "Health", kPublic},
    {"GET", "/v2/health/live", ServeLive, "Whether the process lives", "",
     "Any", kPublic},
    {"GET", "/v2/health/ready", ServeReady, "Whether to send requests here", "",
     "Health", kPublic},
    {"GET", "/version", ServeVersion, "The server's version", "", "Any",
     kPublic},
    {"GET", "/metrics", ServeMetrics, "Metrics in Prometheus' text format", "",
     "", kPublic},
    {"GET", "/v2", ServeOipServer, "The server and its extensions", "", "Any"},
    {"GET", "/v2/models", ServeOipModels, "Names of all models", "", "Any"},
    {"POST", "/v2/repository/index", ServeRepositoryIndex,
     "All models of the repository and their states", "Any", "RepositoryIndex",
     !kPublic, kTakesBytes},
    {"POST", "/v2/repository/models/{id}/load", ServeRepositoryLoad,
     "Loads a model (--model-control-mode explicit)", "Any", "", !kPublic,
     kTakesBytes},
    {"POST", "/v2/repository/models/{id}/unload", ServeRepositoryUnload,
     "Unloads a model (--model-control-mode explicit)", "Any", "", !kPublic,
     kTakesBytes},
    {"GET", "/v2/models/stats", ServeOipModelStats,
     "What graphs computed since they were loaded", "", "Any"},
    {"GET", "/v2/models/{id}/versions/{version}/config", ServeOipModelConfig,
     "Configuration of a version", "", "Any"},
    {"GET", "/v2/models/{id}/versions/{version}/stats", ServeOipModelStats,
     "What a version of a graph computed", "", "Any"},
    {"GET", "/v2/models/{id}/config", ServeOipModelConfig,
     "Configuration of a model", "", "Any"},
    {"GET", "/v2/models/{id}/stats", ServeOipModelStats,
     "What a graph computed", "", "Any"},
    {"GET", "/v2/models/{id}/versions/{version}/ready", ServeOipModelReady,
     "Whether a version serves", "", "Any"},
    {"POST", "/v2/models/{id}/versions/{version}/infer", ServeOipInfer,
     "Computes tensors with a version", "InferRequest", "InferResponse",
     !kPublic, kTakesBytes, GuardOipInfer},
    {"GET", "/v2/models/{id}/versions/{version}", ServeOipModel,
     "Inputs and outputs of a version", "", "ModelMetadata"},
    {"GET", "/v2/models/{id}/ready", ServeOipModelReady,
     "Whether a model serves", "", "Any"},
    {"POST", "/v2/models/{id}/infer", ServeOipInfer, "Computes tensors",
     "InferRequest", "InferResponse", !kPublic, kTakesBytes, GuardOipInfer},
    {"GET", "/v2/models/{id}", ServeOipModel, "Inputs and outputs of a model",
     "", "ModelMetadata"},
};

constexpr Route kMetrics[] = {
    {"GET", "/metrics", ServeMetrics, "Metrics in Prometheus' text format", "",
     "", kPublic},
    {"GET", "/health", ServeHealth, "Whether to send requests here", "",
     "Health", kPublic},
};

}  // namespace

std::span<const Route> ServingRoutes() { return kServing; }
std::span<const Route> MetricsRoutes() { return kMetrics; }

}  // namespace millrace::server::http
