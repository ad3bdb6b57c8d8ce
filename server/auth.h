// Authentication of requests, and the scopes of a caller: API keys as
// `Authorization: Bearer KEY` or `X-Api-Key: KEY`.
//
//   ASSIGN_OR_RETURN(auto auth, Auth::Create(settings));
//   ASSIGN_OR_RETURN(auto caller, auth->Identify(authorization, x_api_key));
//   RETURN_IF_ERROR(auth->Check(*caller, Scope::kManage));
//
// Keys of the settings (api_key, api_key_file) have every scope and belong to
// one tenant without limits. Those of api_keys_file have scopes, and tenants
// with limits; that file is read again when it changes, and while it cannot be
// used the keys of before stay and the log says why.
//
// Keys that the server makes itself (IssueKeys) replace those of before.
//
// A bearer value of three parts is a JSON Web Token where jwt_jwks_file is set,
// see server/jwt.h.
//
// Only SHA-256 digests are kept. A key is found by its digest, which clients
// cannot choose, and compared in constant time. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/clock.h"
#include "config/base/mutex.h"
#include "config/base/status.h"
#include "config/schema.h"
#include "server/jwt.h"
#include "server/key_file.h"
#include "server/tenant.h"
#include "server/watched_file.h"

namespace millrace::server {

// Shared by the table of keys and the requests under way. All but `revoked` is
// immutable.
struct Caller {
  std::string id;                  // of the key; empty: nobody was asked
  std::shared_ptr<Tenant> tenant;  // never null
  Scopes scopes = kAllScopes;
  int64_t expires_unix = 0;  // of a token or an issued key; 0: never
  // Set once the key is no longer in the file, or means something else there.
  // Relaxed: nothing else is published by it.
  mutable std::atomic<bool> revoked{false};
};
using CallerPtr = std::shared_ptr<const Caller>;

// The key of "Bearer KEY", the scheme in any case (RFC 9110, section 11.1);
// empty where it is none.
std::string_view BearerKey(std::string_view authorization);

// Where keys come from beside the settings.
enum class KeySource { kSettings, kIssued };

class Auth {
 public:
  // FAILED_PRECONDITION when the host is not a loopback address and there is
  // neither a key nor --no-auth, or when a file cannot be used. With kIssued
  // a key is always needed, and no request passes before IssueKeys.
  static StatusOr<std::unique_ptr<Auth>> Create(
      const config::ServerSettings& settings,
      const Clock* clock = &Clock::Real(),
      KeySource source = KeySource::kSettings);

  // The keys that pass from now on, beside those of the settings. Only with
  // kIssued and without api_keys_file, which is read again by itself.
  void IssueKeys(std::vector<KeyEntry> keys) EXCLUDES(mu_);

  // Without keys every caller passes, whatever it sends (clients always send
  // something). UNAUTHENTICATED otherwise. Never returns null.
  StatusOr<CallerPtr> Identify(std::string_view authorization,
                               std::string_view api_key);
  // UNAUTHENTICATED where the caller, identified before, would not be any more:
  // asked for each message of a long stream.
  Status CheckStillValid(const Caller& caller);
  // Who acts for a tenant when no request does: its batches. UNAUTHENTICATED
  // when the key file names it no longer.
  StatusOr<CallerPtr> CallerOf(const std::string& tenant);
  // PERMISSION_DENIED names the scope that is missing.
  Status Check(const Caller& caller, Scope scope) const;

  // Some key is wanted.
  bool required() const { return required_; }
  // Keys differ in what they may do, so that metrics want one, too.
  bool scoped() const { return file_ != nullptr || jwks_file_ != nullptr; }

 private:
  // By the first bytes of the digest.
  struct Known {
    Digest digest;
    CallerPtr caller;
  };
  using Table = std::multimap<uint64_t, Known>;

  Auth(const config::ServerSettings& settings, const Clock* clock);
  Status AddPlainKeys(const config::ServerSettings& settings);
  // Makes the table from the file and the plain keys.
  void UseFile(KeyFile file) REQUIRES(mu_);
  // The caller that an entry stood for before, if nothing of it changed.
  CallerPtr FindSame(const KeyEntry& key) const REQUIRES(mu_);
  std::shared_ptr<Tenant> TenantOf(const std::string& name,
                                   const TenantLimits& limits) REQUIRES(mu_);
  Status ReadKeys() EXCLUDES(mu_);
  Status ReadJwks() EXCLUDES(mu_);
  // Reads again what changed. One thread does; others go on with what there is.
  void Refresh() EXCLUDES(mu_);
  StatusOr<CallerPtr> IdentifyToken(std::string_view token);

  const Clock* const clock_;
  const TokenRules token_rules_;
  bool required_ = false;
  std::vector<KeyEntry> plain_keys_;  // of the settings
  CallerPtr anybody_;                 // where no key is wanted

  Mutex mu_;
  bool is_refreshing_ GUARDED_BY(mu_) = false;
  // The pointer under mu_; read by the thread that refreshes; null: none.
  std::unique_ptr<WatchedFile> file_;
  std::unique_ptr<WatchedFile> jwks_file_;
  std::map<std::string, std::shared_ptr<Tenant>> tenants_ GUARDED_BY(mu_);
  uint32_t num_tenants_ GUARDED_BY(mu_) = 0;  // that there have ever been
  std::shared_ptr<const Table> table_ GUARDED_BY(mu_);
  std::shared_ptr<const std::vector<JsonWebKey>> jwks_ GUARDED_BY(mu_);
};

}  // namespace millrace::server
