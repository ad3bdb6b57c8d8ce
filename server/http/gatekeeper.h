// What is decided from a request's head alone, before any of its body is read:
// the route, the key, the media type. Cheap: it runs on I/O threads for every
// request, at full load too.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "config/base/trace.h"
#include "server/auth.h"
#include "server/http/access.h"
#include "server/http/message.h"
#include "server/http/router.h"
#include "server/http/site.h"

namespace millrace::server::http {

struct Admission {
  RouteMatch match;
  Access access = Access::kAnyKey;  // what the route wants
  CallerPtr caller;  // null: the route is public, or the key unknown
  Permit permit;     // of the caller's tenant, until the request ends
  // Set: the request ends here.
  std::optional<HttpResponse> answer;
};

Admission Admit(const Site& site, std::span<const Route> routes,
                const HttpRequest& head);

// x-ratelimit-*, in OpenAI's words, where the tenant has such limits.
void AddQuotaHeaders(const Tenant& tenant, HttpResponse& response);

// X-Request-Id, traceparent of a request in a trace, and CORS.
void AddCommonHeaders(const Site& site, const Trace& trace,
                      HttpResponse& response);

}  // namespace millrace::server::http
