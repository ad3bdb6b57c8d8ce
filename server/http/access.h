// What a key must be good for at each route, by its pattern.
#pragma once

#include <string_view>

#include "server/http/router.h"

namespace millrace::server::http {

enum class Access {
  kPublic,   // no key
  kAnyKey,   // any key: lists and descriptions, no computation
  kInfer,    // scope infer; counts against the tenant's limits
  kManage,   // scope manage; written to the audit log where it changes things
  kMetrics,  // scope metrics
  // Scope metrics where keys have scopes, else public, for scrapers of servers
  // with one key send none.
  kScrape,
};

// Whether the route belongs on the port of management, where there is one.
inline bool IsInternal(Access access) {
  return access == Access::kManage || access == Access::kMetrics ||
         access == Access::kScrape;
}

// A route that no rule names needs scope infer for POST, else any key.
Access AccessOf(const Route& route);

// Whether the request is one of scrapers and probes, which are answered on
// connections beyond max_connections, too. `target` as in the request's line.
bool AnsweredWhenFull(std::string_view method, std::string_view target);

}  // namespace millrace::server::http
