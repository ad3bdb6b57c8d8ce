// What is answered before the body is read. Without a key, all paths but the
// public ones are 401, also paths that do not exist: who has no key does not
// learn which routes there are.
#include "server/http/gatekeeper.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "config/base/utf8.h"
#include "server/http/content_coding.h"
#include "server/http/origin.h"
#include "server/http/refusal.h"
#include "server/http/routes.h"
#include "server/http/socket_protocol.h"
#include "server/http/torchserve_form.h"

namespace millrace::server::http {
namespace {

constexpr size_t kMaxHeaderListBytes = 1000;
constexpr size_t kShownPath = 200;  // of a path in an error
constexpr std::string_view kBytes = "application/octet-stream";
constexpr std::string_view kForm = "application/x-www-form-urlencoded";

// Without parameters, in lower case.
std::string MediaType(std::string_view content_type) {
  std::string_view type = content_type.substr(
      0, std::min(content_type.find(';'), content_type.size()));
  while (!type.empty() && type.back() == ' ') type.remove_suffix(1);
  std::string lower(type);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

// Whether the body is JSON, or bytes where the route takes them.
// "application/json; charset=utf-8" and "application/problem+json" are JSON.
bool TakesType(const Site& site, const Route& route, const HttpRequest& head) {
  const std::string_view given = head.Header("content-type");
  const std::string type = MediaType(given);
  // A page of another origin can make a browser send a body without a type, or
  // none at all, without asking first.
  if (given.empty()) return IsAllowedOrigin(site.settings, head);
  if (type == "application/json" || type.ends_with("+json") ||
      (route.takes_bytes && type == kBytes)) {
    return true;
  }
  // What curl -d says of any body, and any other type: such a page can have
  // these sent, too.
  return (route.takes_bytes || type == kForm) &&
         IsAllowedOrigin(site.settings, head);
}

// Names of headers between commas, in a reasonable number of bytes.
bool IsHeaderList(std::string_view text) {
  return !text.empty() && text.size() <= kMaxHeaderListBytes &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  (c >= '0' && c <= '9') || c == '-' || c == '_' || c == ',' ||
                  c == ' ';
         });
}

// OPTIONS: what a browser asks before it sends a request to another origin.
// `wanted`: Access-Control-Request-Headers. The key decides what a request may
// do, so any header may be sent; names that are no header names are not echoed.
HttpResponse Preflight(const Site& site, const std::string& allow,
                       std::string_view wanted) {
  HttpResponse response;
  response.status = 204;
  response.headers.emplace_back("Allow", allow);
  if (!site.settings.cors_allow_origin.empty()) {
    response.headers.emplace_back("Access-Control-Allow-Methods", allow);
    response.headers.emplace_back(
        "Access-Control-Allow-Headers",
        IsHeaderList(wanted)
            ? std::string(wanted)
            : "Authorization, Content-Type, X-Api-Key, X-Request-Id, "
              "X-Request-Timeout-Ms, traceparent, tracestate");
    response.headers.emplace_back("Access-Control-Max-Age", "86400");
    response.headers.emplace_back("Vary", "Access-Control-Request-Headers");
  }
  return response;
}

// Routes of other servers that people try here, and what to do instead.
struct NotOffered {
  std::string_view prefix;
  std::string_view instead;
};
constexpr NotOffered kNotOffered[] = {
    {"/v1/audio/", "of audio, POST /v1/audio/transcriptions is offered"},
    {"/v1/images/", "images are not offered"},
    {"/api/pull", "models are loaded by POST /v2/repository/models/{id}/load"},
    {"/generate", "complete text with POST /v1/completions"},
    {"/predictions/",
     "send tensors with POST /v2/models/{id}/infer, or serve with --profile "
     "torchserve"},
    {"/ping",
     "GET /health says whether to send requests, and --profile torchserve has "
     "this route"},
    {"/models",
     "GET /v1/models and /v2/models list models, POST "
     "/v2/repository/models/{id}/load loads one, and --profile torchserve has "
     "this route"},
};

// Such routes whose path is one of a model here.
std::string Instead(std::string_view path) {
  if (!path.ends_with(":predict") && !path.ends_with(":explain")) return {};
  return "; KServe v1's routes are those of --profile torchserve, with KServe "
         "v2 send tensors to POST /v2/models/{id}/infer";
}

// The port of metrics alone has few routes: they are listed.
std::string Listed(std::span<const Route> routes) {
  std::string text = "this port serves";
  for (const Route& route : routes) {
    text.append(&route == routes.data() ? " " : ", ")
        .append(route.method)
        .append(" ")
        .append(route.pattern);
  }
  return text;
}

Status NothingAt(const Site& site, std::span<const Route> routes,
                 const std::string& path) {
  const std::string shown = Shortened(path, kShownPath);
  if (site.settings.management_port >= 0) {
    for (const Route& route : ServingRoutes()) {
      if (IsInternal(AccessOf(route)) &&
          FindRoute({&route, 1}, route.method, path).route != nullptr) {
        return NotFound("'" + shown +
                        "' is not on this port; use that of management_port")
            .Because("route_not_found");
      }
    }
  }
  if (FindRoute(routes, "GET", "/openapi.json").route == nullptr) {
    return NotFound("there is nothing at '" + shown + "'; " + Listed(routes))
        .Because("route_not_found");
  }
  std::string remedy;
  for (const NotOffered& each : kNotOffered) {
    if (path.starts_with(each.prefix)) {
      remedy = "; " + std::string(each.instead);
      break;
    }
  }
  if (remedy.empty()) {
    if (const Route* near = NearestRoute(routes, path); near != nullptr) {
      remedy = "; did you mean " + std::string(near->method) + " " +
               std::string(near->pattern) + "?";
    }
  }
  return NotFound("there is nothing at '" + shown + "'" + remedy +
                  (remedy.ends_with('?') ? " " : "; ") +
                  "GET /openapi.json lists the routes")
      .Because("route_not_found");
}

// Without a key in a header, that of a browser which opens a WebSocket.
StatusOr<CallerPtr> IdentifyCaller(Auth& auth, const Route* route,
                                   const HttpRequest& head) {
  const std::string_view authorization = head.Header("authorization");
  const std::string_view api_key = head.Header("x-api-key");
  if (route != nullptr && route->socket != nullptr && authorization.empty() &&
      api_key.empty()) {
    if (const std::string_view key = OfferedKey(head); !key.empty()) {
      return auth.Identify("Bearer " + std::string(key), {});
    }
  }
  return auth.Identify(authorization, api_key);
}

// Who sends the request, and whether the key is good for the route.
Status Authorize(const Site& site, Access access, const HttpRequest& head,
                 Admission& admission) {
  Auth& auth = *site.services.auth;
  if (access == Access::kPublic ||
      (access == Access::kScrape && !auth.scoped())) {
    return OkStatus();
  }
  ASSIGN_OR_RETURN(admission.caller,
                   IdentifyCaller(auth, admission.match.route, head));
  switch (access) {
    case Access::kInfer:
      return auth.Check(*admission.caller, Scope::kInfer);
    case Access::kManage:
      return auth.Check(*admission.caller, Scope::kManage);
    case Access::kMetrics:
    case Access::kScrape:
      return auth.Check(*admission.caller, Scope::kMetrics);
    default:
      return OkStatus();
  }
}

// "1.5s", as OpenAI writes times until a reset.
std::string SecondsText(std::chrono::milliseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3gs",
                static_cast<double>(time.count()) / 1000);
  return text;
}

}  // namespace

HttpResponse Refusal(const Site& site, const std::string& path,
                     const Status& status) {
  if (site.services.torchserve != nullptr &&
      (IsTorchServePath(path) || status.reason() == "route_not_found")) {
    return TorchServeErrorResponse(status);
  }
  if (path == "/v2" || path.starts_with("/v2/") || path.starts_with("/api/")) {
    return OipErrorResponse(status);
  }
  return path.starts_with("/v1/messages") ? AnthropicErrorResponse(status)
                                          : ErrorResponse(status);
}

Admission Admit(const Site& site, std::span<const Route> routes,
                const HttpRequest& head) {
  Admission admission;
  admission.match = FindRoute(routes, head.method, head.path);
  const RouteMatch& match = admission.match;
  const bool describes = match.route != nullptr &&
                         !head.HasHeader("access-control-request-method");
  if (head.method == "OPTIONS" && !describes &&
      (match.route != nullptr || !match.allow.empty() || head.path == "*" ||
       head.path == "/")) {
    admission.answer = Preflight(
        site, match.allow.empty() ? "GET, HEAD, POST, OPTIONS" : match.allow,
        head.Header("access-control-request-headers"));
    return admission;
  }
  if (match.route != nullptr) admission.access = AccessOf(*match.route);
  const Access access = admission.access;
  if (const Status known = Authorize(site, access, head, admission);
      !known.ok()) {
    admission.answer = Refusal(site, head.path, known);
    return admission;
  }
  if (match.route == nullptr && match.allow.empty()) {
    admission.answer =
        Refusal(site, head.path, NothingAt(site, routes, head.path));
    return admission;
  }
  if (match.route == nullptr) {
    admission.answer = Refusal(
        site, head.path,
        InvalidArgument("'" + head.path + "' does not take " + head.method +
                        "; use one of " + match.allow + Instead(head.path))
            .Because("method_not_allowed"));
    admission.answer->headers.emplace_back("Allow", match.allow);
    return admission;
  }
  const bool has_body =
      match.route->method == "POST" ||
      (match.route->method == "PUT" && access == Access::kInfer);
  // TorchServe predicts with any method.
  if (access == Access::kInfer && (has_body || match.route->takes_bytes)) {
    StatusOr<Permit> permit = admission.caller->tenant->Admit();
    if (!permit.ok()) {
      admission.answer = Refusal(site, head.path, permit.status());
      return admission;
    }
    admission.permit = *std::move(permit);
  }
  if (!has_body) return admission;
  if (!TakesType(site, *match.route, head)) {
    admission.answer =
        Refusal(site, head.path,
                InvalidArgument("the Content-Type is '" +
                                std::string(head.Header("content-type")) +
                                "'; send application/json")
                    .Because("unsupported_media_type"));
    return admission;
  }
  const auto coding = ReadContentCoding(head.Header("content-encoding"));
  if (!coding.ok()) {
    admission.answer = Refusal(site, head.path, coding.status());
    return admission;
  }
  if (match.route->guard == nullptr) return admission;
  if (const Status free = match.route->guard(site, match.params); !free.ok()) {
    admission.answer = Refusal(site, head.path, free);
  }
  return admission;
}

void AddQuotaHeaders(const Tenant& tenant, HttpResponse& response) {
  const Quota quota = tenant.quota();
  const auto add = [&response](const char* name, std::string value) {
    response.headers.emplace_back(name, std::move(value));
  };
  if (quota.limit_requests >= 0) {
    add("x-ratelimit-limit-requests", std::to_string(quota.limit_requests));
    add("x-ratelimit-remaining-requests",
        std::to_string(quota.remaining_requests));
    add("x-ratelimit-reset-requests", SecondsText(quota.reset_requests));
  }
  if (quota.limit_tokens >= 0) {
    add("x-ratelimit-limit-tokens", std::to_string(quota.limit_tokens));
    add("x-ratelimit-remaining-tokens", std::to_string(quota.remaining_tokens));
    add("x-ratelimit-reset-tokens", SecondsText(quota.reset_tokens));
  }
}

void AddCommonHeaders(const Site& site, const Trace& trace,
                      HttpResponse& response) {
  response.headers.emplace_back("X-Request-Id", trace.request_id);
  if (trace.context.valid()) {
    response.headers.emplace_back("traceparent", Traceparent(trace.context));
  }
  const std::string& origin = site.settings.cors_allow_origin;
  if (origin.empty()) return;
  response.headers.emplace_back("Access-Control-Allow-Origin", origin);
  if (origin != "*") response.headers.emplace_back("Vary", "Origin");
  response.headers.emplace_back("Access-Control-Expose-Headers",
                                "X-Request-Id, Retry-After, traceparent, "
                                "x-ratelimit-limit-requests, "
                                "x-ratelimit-remaining-requests, "
                                "x-ratelimit-reset-requests, "
                                "x-ratelimit-limit-tokens, "
                                "x-ratelimit-remaining-tokens, "
                                "x-ratelimit-reset-tokens");
}

}  // namespace millrace::server::http
