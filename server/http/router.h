// Which function serves which method and path: one table, read by eye.
//
//   {"GET", "/v1/models/{id}", ServeModel, "One model", "", "Model"}
//
// A {parameter} is one segment of the path; the last one takes the rest, for
// model ids may hold slashes. "/openai/v1/…" is "/v1/…". The API's description
// and the front page are made from the same table.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "server/http/exchange.h"
#include "server/http/socket_handler.h"

namespace millrace::server::http {

struct Site;

// Runs on an I/O thread: answers at once when that is cheap, else posts its
// work to the handler pool. Never throws, never waits.
using RouteFunction = void (*)(const Site& site,
                               const std::shared_ptr<Exchange>& exchange);

// The same for what the head alone decides, before the body is read: OK, or why
// the request is refused.
using RouteGuard = Status (*)(const Site& site,
                              const std::vector<std::string>& params);

struct Route {
  std::string_view method;  // "GET" serves HEAD too
  std::string_view pattern;
  RouteFunction serve;
  std::string_view summary;  // what it is for, one line
  // Schemas of its JSON bodies, by their names in openapi.cc; empty: none.
  std::string_view request = {};
  std::string_view response = {};
  bool is_public = false;    // needs no key
  bool takes_bytes = false;  // a body that is no JSON, too
  RouteGuard guard = nullptr;
  SocketFunction socket = nullptr;  // then GET asks for a WebSocket
  // What each path of the pattern begins and ends with.
  std::string_view head = pattern.substr(0, pattern.find('{'));
  std::string_view tail = pattern.substr(pattern.rfind('}') + 1);
};

struct RouteMatch {
  const Route* route = nullptr;
  std::vector<std::string> params;
  // When the path is known and the method is not, or is OPTIONS.
  std::string allow;  // "GET, HEAD, OPTIONS"
};

RouteMatch FindRoute(std::span<const Route> routes, std::string_view method,
                     std::string_view path);

// The route that `path` was most likely meant for; null when none is near.
const Route* NearestRoute(std::span<const Route> routes, std::string_view path);

// The tables of the two ports (routes.cc).
std::span<const Route> ServingRoutes();
std::span<const Route> MetricsRoutes();

}  // namespace millrace::server::http
