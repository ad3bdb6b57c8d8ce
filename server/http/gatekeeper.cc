// Responses before the body is read. Without a key, all but the public paths
// are 401, unknown paths too, so that a stranger learns nothing of what is
// here.
#include "server/http/gatekeeper.h"

#include <sys/random.h>

#include <algorithm>
#include <cstdint>

#include "server/http/content_coding.h"

namespace millrace::server::http {
namespace {

constexpr size_t kMaxRequestIdChars = 128;
constexpr size_t kShownPath = 200;  // of a path in an error
constexpr std::string_view kBytes = "application/octet-stream";

bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c > ' ' && c < 0x7f; });
}

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

// "application/json; charset=utf-8" and "application/problem+json" are JSON.
bool IsJson(std::string_view content_type) {
  const std::string type = MediaType(content_type);
  return type == "application/json" || type.ends_with("+json");
}

// What curl -d says of any body. A page of another origin can make a browser
// send it without asking first, but not without naming that origin.
bool IsCurlsDefault(const HttpRequest& head) {
  return MediaType(head.Header("content-type")) ==
             "application/x-www-form-urlencoded" &&
         !head.HasHeader("origin");
}

// OPTIONS: what a browser asks before it sends a request to another origin.
HttpResponse Preflight(const Site& site, const std::string& allow) {
  HttpResponse response;
  response.status = 204;
  response.headers.emplace_back("Allow", allow);
  if (!site.settings.cors_allow_origin.empty()) {
    response.headers.emplace_back("Access-Control-Allow-Methods", allow);
    response.headers.emplace_back(
        "Access-Control-Allow-Headers",
        "Authorization, Content-Type, X-Api-Key, X-Request-Id, "
        "X-Request-Timeout-Ms");
    response.headers.emplace_back("Access-Control-Max-Age", "86400");
  }
  return response;
}

// Routes of other servers that people try here, and what to do instead.
struct NotOffered {
  std::string_view prefix;
  std::string_view instead;
};
constexpr std::string_view kChatInstead = "chat with POST /v1/chat/completions";
constexpr NotOffered kNotOffered[] = {
    {"/v1/embeddings", "embeddings are not offered"},
    {"/v1/rerank", "reranking is not offered"},
    {"/v1/audio/", "audio is not offered"},
    {"/v1/images/", "images are not offered"},
    {"/v1/responses", kChatInstead},
    {"/v1/messages", kChatInstead},
    {"/api/chat", kChatInstead},
    {"/api/generate", "complete text with POST /v1/completions"},
    {"/generate", "complete text with POST /v1/completions"},
    {"/predictions/", "send tensors with POST /v2/models/{id}/infer"},
};

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

Status NothingAt(std::span<const Route> routes, const std::string& path) {
  const std::string shown = path.substr(0, kShownPath);
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

HttpResponse Refusal(const HttpRequest& head, const Status& status) {
  return head.path == "/v2" || head.path.starts_with("/v2/")
             ? OipErrorResponse(status)
             : ErrorResponse(status);
}

}  // namespace

Admission Admit(const Site& site, std::span<const Route> routes,
                const HttpRequest& head) {
  Admission admission;
  admission.match = FindRoute(routes, head.method, head.path);
  const RouteMatch& match = admission.match;
  if (head.method == "OPTIONS" &&
      (!match.allow.empty() || head.path == "*" || head.path == "/")) {
    admission.answer = Preflight(
        site, match.allow.empty() ? "GET, HEAD, POST, OPTIONS" : match.allow);
    return admission;
  }
  if (match.route == nullptr || !match.route->is_public) {
    const Status known = site.services.auth->Check(head.Header("authorization"),
                                                   head.Header("x-api-key"));
    if (!known.ok()) {
      admission.answer = Refusal(head, known);
      return admission;
    }
  }
  if (match.route == nullptr && match.allow.empty()) {
    admission.answer = Refusal(head, NothingAt(routes, head.path));
    return admission;
  }
  if (match.route == nullptr) {
    admission.answer = Refusal(
        head, InvalidArgument("'" + head.path + "' does not take " +
                              head.method + "; use one of " + match.allow)
                  .Because("method_not_allowed"));
    admission.answer->headers.emplace_back("Allow", match.allow);
    return admission;
  }
  if (match.route->method != "POST") return admission;
  const std::string_view type = head.Header("content-type");
  const bool fits = type.empty() || IsJson(type) || IsCurlsDefault(head) ||
                    (match.route->takes_bytes &&
                     (MediaType(type) == kBytes || !head.HasHeader("origin")));
  if (!fits) {
    admission.answer = Refusal(
        head, InvalidArgument("the Content-Type is '" + std::string(type) +
                              "'; send application/json")
                  .Because("unsupported_media_type"));
    return admission;
  }
  const auto coding = ReadContentCoding(head.Header("content-encoding"));
  if (!coding.ok()) {
    admission.answer = Refusal(head, coding.status());
    return admission;
  }
  if (match.route->guard == nullptr) return admission;
  if (const Status free = match.route->guard(site, match.params); !free.ok()) {
    admission.answer = Refusal(head, free);
  }
  return admission;
}

std::string RequestIdOf(const HttpRequest& head) {
  const std::string_view given = head.Header("x-request-id");
  if (!given.empty() && given.size() <= kMaxRequestIdChars &&
      IsPrintable(given)) {
    return std::string(given);
  }
  return "req-" + RandomHex(24);
}

void AddCommonHeaders(const Site& site, std::string_view request_id,
                      HttpResponse& response) {
  response.headers.emplace_back("X-Request-Id", request_id);
  const std::string& origin = site.settings.cors_allow_origin;
  if (origin.empty()) return;
  response.headers.emplace_back("Access-Control-Allow-Origin", origin);
  if (origin != "*") response.headers.emplace_back("Vary", "Origin");
  response.headers.emplace_back("Access-Control-Expose-Headers",
                                "X-Request-Id, Retry-After");
}

std::string RandomHex(int num_digits) {
  uint8_t bytes[64] = {};
  const size_t num_bytes =
      std::min<size_t>((static_cast<size_t>(num_digits) + 1) / 2, sizeof bytes);
  // Cannot fail for so few bytes once the system is up; a zero id would still
  // be a valid one.
  if (getrandom(bytes, num_bytes, 0) < 0) bytes[0] = 0;
  std::string hex;
  for (size_t i = 0; i < num_bytes; ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex.push_back(kDigits[bytes[i] >> 4]);
    hex.push_back(kDigits[bytes[i] & 15]);
  }
  hex.resize(std::min(hex.size(), static_cast<size_t>(num_digits)));
  return hex;
}

}  // namespace millrace::server::http
