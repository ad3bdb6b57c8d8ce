// Matching a path against the table. Patterns are compared one after the other:
// twenty of them cost less than the parse before, so there is no trie.
#include "server/http/router.h"

#include <algorithm>
#include <optional>

namespace millrace::server::http {
namespace {

std::string_view TakeSegment(std::string_view& path) {
  const size_t slash = std::min(path.find('/'), path.size());
  const std::string_view segment = path.substr(0, slash);
  path.remove_prefix(std::min(slash + 1, path.size()));
  return segment;
}

// The parameters, or none when the path does not fit. Both begin with '/'.
std::optional<std::vector<std::string>> Match(std::string_view pattern,
                                              std::string_view path) {
  std::vector<std::string> params;
  pattern.remove_prefix(1);
  path.remove_prefix(1);
  while (true) {
    const size_t num_slashes = std::count(pattern.begin(), pattern.end(), '/');
    const std::string_view want = TakeSegment(pattern);
    const bool is_param = !want.empty() && want.front() == '{';
    if (num_slashes == 0) {
      if (!is_param) {
        if (path != want) return std::nullopt;
        return params;
      }
      if (path.empty()) return std::nullopt;
      params.emplace_back(path);
      return params;
    }
    if (path.find('/') == std::string_view::npos) return std::nullopt;
    const std::string_view have = TakeSegment(path);
    if (is_param) {
      if (have.empty()) return std::nullopt;
      params.emplace_back(have);
    } else if (have != want) {
      return std::nullopt;
    }
  }
}

void AddMethod(std::string& allow, std::string_view method) {
  if (allow.find(method) != std::string::npos) return;
  if (!allow.empty()) allow += ", ";
  allow += method;
}

}  // namespace

RouteMatch FindRoute(std::span<const Route> routes, std::string_view method,
                     std::string_view path) {
  constexpr std::string_view kPrefix = "/openai";
  if (path.substr(0, kPrefix.size() + 4) == "/openai/v1/") {
    path.remove_prefix(kPrefix.size());
  }
  RouteMatch match;
  if (path.empty() || path.front() != '/') return match;
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  for (const Route& route : routes) {
    std::optional<std::vector<std::string>> params = Match(route.pattern, path);
    if (!params.has_value()) continue;
    // "m/infer" is the name of a model only where no other route fits.
    const bool is_rest =
        !params->empty() && params->back().find('/') != std::string::npos;
    if (is_rest && !match.allow.empty()) continue;
    if (route.method == wanted) {
      match.route = &route;
      match.params = *std::move(params);
      match.allow.clear();
      return match;
    }
    AddMethod(match.allow, route.method);
    if (route.method == "GET") AddMethod(match.allow, "HEAD");
  }
  if (!match.allow.empty()) AddMethod(match.allow, "OPTIONS");
  return match;
}

}  // namespace millrace::server::http
