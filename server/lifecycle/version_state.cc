#include "server/lifecycle/version_state.h"

#include <algorithm>

namespace millrace::server {

std::string_view VersionStateName(VersionState state) {
  switch (state) {
    case VersionState::kLoading:
      return "LOADING";
    case VersionState::kReady:
      return "READY";
    case VersionState::kUnloading:
      return "UNLOADING";
    case VersionState::kUnavailable:
      return "UNAVAILABLE";
    case VersionState::kUnknown:
      break;
  }
  return "UNKNOWN";
}

bool IsLowerVersion(const std::string& a, const std::string& b) {
  const auto is_number = [](const std::string& text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
      return c >= '0' && c <= '9';
    });
  };
  if (is_number(a) != is_number(b)) return is_number(b);
  return a.size() != b.size() && is_number(a) ? a.size() < b.size() : a < b;
}

}  // namespace millrace::server
