// The file of keys and tenants, YAML or JSON:
//
//   tenants:
//     acme:
//       requests_per_second: 10
//       request_burst: 20
//       tokens_per_minute: 60000
//       max_concurrent_requests: 8
//       max_sessions: 4      # WebSockets open at once
//       priority: 1          # lower runs first
//       weight: 4            # beside other tenants
//       models: [smollm2]    # default: all
//   keys:
//     - id: acme-production  # what logs show
//       sha256: DIGEST       # 64 hexadecimal digits
//       tenant: acme         # default: default, a tenant without limits
//       scopes: [infer]      # infer, manage, metrics
//
// The file holds SHA-256 digests only. That is enough for keys that `millrace
// keys create` makes: they have 256 random bits, so guessing one by its digest
// is as hard as guessing the key. Pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "server/tenant.h"

namespace millrace::server {

// What a key may do, as bits.
enum class Scope : uint8_t {
  kInfer = 1,    // run models
  kManage = 2,   // load and unload models, change logs and traces
  kMetrics = 4,  // read metrics and statistics
};
using Scopes = uint8_t;
inline constexpr Scopes kAllScopes = 7;

std::string_view ScopeName(Scope scope);
// "infer" and so on; none for a word that is no scope.
Scopes ScopeOf(std::string_view name);

using Digest = std::array<uint8_t, 32>;
Digest Sha256(std::string_view text);
std::string HexText(std::span<const uint8_t> bytes);

struct KeyEntry {
  std::string id;
  Digest digest{};
  std::string tenant;
  Scopes scopes = 0;
  int64_t expires_unix = 0;  // 0: never; keys of a file never do
};

inline constexpr std::string_view kDefaultTenant = "default";

struct KeyFile {
  std::vector<KeyEntry> keys;
  std::map<std::string, TenantLimits> tenants;  // kDefaultTenant always is one
};

// INVALID_ARGUMENT names the entry, what is wrong and what is allowed. Values
// of digests are not repeated.
StatusOr<KeyFile> ParseKeyFile(std::string_view text);

// "mr_" and 43 characters of base64url, from the system's random source.
StatusOr<std::string> NewKey();

}  // namespace millrace::server
