// The states that a version of a model goes through, and the order of versions.
#pragma once

#include <string>
#include <string_view>

namespace millrace::server {

enum class VersionState {
  kUnknown,      // known to the source, never loaded
  kLoading,      // being loaded; no requests
  kReady,        // takes requests
  kUnloading,    // takes none; its last requests run
  kUnavailable,  // failed to load, or unloaded: see the reason
};
// As Triton's repository index says it: "READY".
std::string_view VersionStateName(VersionState state);

struct VersionStatus {
  std::string name;
  std::string version;  // empty: never loaded
  VersionState state = VersionState::kUnknown;
  std::string reason;
};

// By number; names that are no numbers stand before all numbers.
bool IsLowerVersion(const std::string& a, const std::string& b);

}  // namespace millrace::server
