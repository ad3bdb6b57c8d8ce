#include "server/http/socket_protocol.h"

#include <algorithm>

namespace millrace::server::http {
namespace {

constexpr std::string_view kSession = "millrace.session";
constexpr std::string_view kKeyPrefix = "openai-insecure-api-key.";

// The first of the offered ones that `wanted` takes; empty: none. The header
// may come several times, with lists in it.
template <typename Wanted>
std::string_view FindOffered(const HttpRequest& head, Wanted wanted) {
  for (const auto& [name, value] : head.headers) {
    if (name != "sec-websocket-protocol") continue;
    std::string_view list = value;
    while (!list.empty()) {
      const size_t comma = std::min(list.find(','), list.size());
      std::string_view one = list.substr(0, comma);
      list.remove_prefix(std::min(comma + 1, list.size()));
      const size_t first = one.find_first_not_of(" \t");
      if (first == std::string_view::npos) continue;
      one = one.substr(first, one.find_last_not_of(" \t") - first + 1);
      if (wanted(one)) return one;
    }
  }
  return {};
}

}  // namespace

std::string_view OfferedKey(const HttpRequest& head) {
  std::string_view key = FindOffered(
      head, [](std::string_view one) { return one.starts_with(kKeyPrefix); });
  key.remove_prefix(key.empty() ? 0 : kKeyPrefix.size());
  return key;
}

std::string_view ChosenProtocol(const HttpRequest& head) {
  return FindOffered(head,
                     [](std::string_view one) { return one == kSession; });
}

}  // namespace millrace::server::http
