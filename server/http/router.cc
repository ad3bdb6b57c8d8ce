// Matching a path against the table. Patterns are compared one after the other,
// most by their length or their last characters only, so there is no trie.
#include "server/http/router.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace millrace::server::http {
namespace {

// A path that differs in more than a few characters, or a quarter of its own,
// was meant for something else; one that differs in a third of its own, too.
constexpr size_t kFewEdits = 3;
constexpr size_t kLongestMistake = 200;

std::string_view TakeSegment(std::string_view& path) {
  const size_t slash = std::min(path.find('/'), path.size());
  const std::string_view segment = path.substr(0, slash);
  path.remove_prefix(std::min(slash + 1, path.size()));
  return segment;
}

// Whether a path may fit, which rules out most routes at once. Without
// parameters it does.
bool MayFit(const Route& route, std::string_view path) {
  if (route.head.size() == route.pattern.size()) return path == route.pattern;
  return path.ends_with(route.tail) && path.starts_with(route.head);
}

// The parameters, or none when the path does not fit. Both begin with '/'.
std::optional<std::vector<std::string>> Match(std::string_view pattern,
                                              std::string_view path) {
  std::vector<std::string> params;
  pattern.remove_prefix(1);
  path.remove_prefix(1);
  while (true) {
    const bool is_last = pattern.find('/') == std::string_view::npos;
    const std::string_view want = TakeSegment(pattern);
    const bool is_param = !want.empty() && want.front() == '{';
    if (is_last) {
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

// `pattern` with its {parameters} taken from the same place in `path`.
std::string Filled(std::string_view pattern, std::string_view path) {
  std::string filled;
  while (!pattern.empty()) {
    const std::string_view want = TakeSegment(pattern);
    const std::string_view have = TakeSegment(path);
    const bool is_param = !want.empty() && want.front() == '{';
    filled.append(is_param && !have.empty() ? have : want);
    if (!pattern.empty()) filled += '/';
  }
  return filled;
}

// How many characters must be added, removed or exchanged (Levenshtein).
size_t Edits(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t corner = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t same = corner + (a[i - 1] == b[j - 1] ? 0 : 1);
      corner = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, same});
    }
  }
  return row.back();
}

}  // namespace

const Route* NearestRoute(std::span<const Route> routes,
                          std::string_view path) {
  path = path.substr(0, kLongestMistake);
  const Route* nearest = nullptr;
  size_t fewest = std::max<size_t>(kFewEdits, path.size() / 4) + 1;
  for (const Route& route : routes) {
    const size_t edits = Edits(path, Filled(route.pattern, path));
    if (edits >= fewest || 3 * edits >= path.size()) continue;
    fewest = edits;
    nearest = &route;
  }
  return nearest;
}

RouteMatch FindRoute(std::span<const Route> routes, std::string_view method,
                     std::string_view path) {
  constexpr std::string_view kPrefix = "/openai";
  if (path.substr(0, kPrefix.size() + 4) == "/openai/v1/") {
    path.remove_prefix(kPrefix.size());
  }
  RouteMatch match;
  std::string_view refused;  // the pattern that fits, but not by its method
  if (path.empty() || path.front() != '/') return match;
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  for (const Route& route : routes) {
    if (!MayFit(route, path)) continue;
    std::optional<std::vector<std::string>> params = Match(route.pattern, path);
    if (!params.has_value()) continue;
    // "m/infer" is the name of a model only where no other route fits.
    const bool is_rest =
        !params->empty() && params->back().find('/') != std::string::npos;
    if (is_rest && !match.allow.empty() && route.pattern != refused) continue;
    if (route.method == wanted) {
      match.route = &route;
      match.params = *std::move(params);
      match.allow.clear();
      return match;
    }
    refused = route.pattern;
    AddMethod(match.allow, route.method);
    if (route.method == "GET") AddMethod(match.allow, "HEAD");
  }
  if (!match.allow.empty()) AddMethod(match.allow, "OPTIONS");
  return match;
}

}  // namespace millrace::server::http
