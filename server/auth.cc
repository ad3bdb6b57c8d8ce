// The table of keys is immutable: a changed file makes a new one, and requests
// that are being checked keep theirs.
#include "server/auth.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fstream>
#include <set>
#include <utility>

#include "config/base/log.h"

namespace millrace::server {
namespace {

std::string_view Trimmed(std::string_view text) {
  const auto is_blank = [](char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
  };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

bool IsLoopback(std::string_view host) {
  if (host == "localhost" || host == "::1" || host == "[::1]") return true;
  // 127.0.0.0/8 in digits; "127.example.org" is a name like any other.
  return host.substr(0, 4) == "127." &&
         host.find_first_not_of("0123456789.") == std::string_view::npos;
}

uint64_t FirstBytes(const Digest& digest) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, digest.data(), sizeof bytes);
  return bytes;
}

int64_t UnixNow() {
  return std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
}

}  // namespace

std::string_view BearerKey(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() < kScheme.size()) return {};
  for (size_t i = 0; i < kScheme.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(authorization[i])) !=
        kScheme[i]) {
      return {};
    }
  }
  return Trimmed(authorization.substr(kScheme.size()));
}

Auth::Auth(const config::ServerSettings& settings, const Clock* clock)
    : clock_(clock), token_rules_{settings.jwt_issuer, settings.jwt_audience} {
  if (!settings.jwt_jwks_file.empty()) {
    jwks_file_ = std::make_unique<WatchedFile>(settings.jwt_jwks_file, clock);
  }
  if (!settings.api_keys_file.empty()) {
    file_ = std::make_unique<WatchedFile>(settings.api_keys_file, clock);
  }
}

StatusOr<std::unique_ptr<Auth>> Auth::Create(
    const config::ServerSettings& settings, const Clock* clock,
    KeySource source) {
  std::unique_ptr<Auth> auth(new Auth(settings, clock));
  RETURN_IF_ERROR(auth->AddPlainKeys(settings));
  if (const Status used = auth->ReadKeys(); !used.ok()) {
    return FailedPrecondition(std::string(used.message())).At("api_keys_file");
  }
  if (auth->jwks_file_ != nullptr) {
    if (const Status used = auth->ReadJwks(); !used.ok()) {
      return FailedPrecondition(std::string(used.message()))
          .At("jwt_jwks_file");
    }
  }
  auth->required_ = !auth->plain_keys_.empty() || auth->scoped() ||
                    source == KeySource::kIssued;
  if (!auth->required() && !settings.no_auth && settings.management_port >= 0 &&
      !IsLoopback(settings.management_host)) {
    return FailedPrecondition(
               "management_host is '" + settings.management_host +
               "', which other machines can reach, and there is no API key; "
               "set api_key, api_key_file or api_keys_file, or say --no-auth")
        .At("management_host");
  }
  if (!auth->required() && !settings.no_auth && !IsLoopback(settings.host)) {
    return FailedPrecondition(
               "host is '" + settings.host +
               "', which other machines can reach, and there is no API key; "
               "set api_key, api_key_file or api_keys_file, or say --no-auth")
        .At("host");
  }
  return auth;
}

Status Auth::AddPlainKeys(const config::ServerSettings& settings) {
  const auto add = [this](std::string_view key) {
    key = Trimmed(key);
    if (key.empty()) return;
    plain_keys_.push_back({.id = "key-" + std::to_string(plain_keys_.size()),
                           .digest = Sha256(key),
                           .tenant = std::string(kDefaultTenant),
                           .scopes = kAllScopes});
  };
  std::string_view rest = settings.api_key;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    add(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  if (!settings.api_key_file.empty()) {
    std::ifstream file(settings.api_key_file);
    if (!file) {
      return FailedPrecondition("the file of API keys '" +
                                settings.api_key_file +
                                "' cannot be read; check its path and "
                                "permissions or remove api_key_file")
          .At("api_key_file");
    }
    for (std::string line; std::getline(file, line);) {
      if (!line.empty() && line.front() != '#') add(line);
    }
  }
  const bool keys_were_wanted =
      !settings.api_key.empty() || !settings.api_key_file.empty();
  if (keys_were_wanted && plain_keys_.empty()) {
    return FailedPrecondition(
               "api_key or api_key_file is set but holds no key; give one key "
               "a line, or remove the setting")
        .At("api_key");
  }
  return OkStatus();
}

void Auth::IssueKeys(std::vector<KeyEntry> keys) {
  MutexLock lock(mu_);
  UseFile({.keys = std::move(keys), .tenants = {}});
}

std::shared_ptr<Tenant> Auth::TenantOf(const std::string& name,
                                       const TenantLimits& limits) {
  const auto known = tenants_.find(name);
  if (known == tenants_.end()) {
    return std::make_shared<Tenant>(++num_tenants_, name, limits, clock_);
  }
  known->second->SetLimits(limits);
  return known->second;
}

void Auth::UseFile(KeyFile file) {
  file.tenants.try_emplace(std::string(kDefaultTenant));
  for (const KeyEntry& key : plain_keys_) file.keys.push_back(key);
  // A tenant that the file drops may still have requests under way: those keep
  // it.
  std::map<std::string, std::shared_ptr<Tenant>> tenants;
  for (const auto& [name, limits] : file.tenants) {
    tenants[name] = TenantOf(name, limits);
  }
  tenants_ = std::move(tenants);
  // Tokens may name any tenant, keys only theirs.
  std::set<std::string> used;
  for (const KeyEntry& key : file.keys) used.insert(key.tenant);
  const bool alone =
      (jwks_file_ != nullptr ? tenants_.size() : used.size()) < 2;
  for (const auto& [name, tenant] : tenants_) tenant->SetAlone(alone);
  const auto table = std::make_shared<Table>();
  for (const KeyEntry& key : file.keys) {
    CallerPtr caller = FindSame(key);
    if (caller == nullptr) {
      caller.reset(new Caller{key.id, tenants_.at(key.tenant), key.scopes,
                              key.expires_unix});
    }
    table->emplace(FirstBytes(key.digest), Known{key.digest, caller});
  }
  if (table_ != nullptr) {
    std::set<CallerPtr> kept;
    for (const auto& [bytes, known] : *table) kept.insert(known.caller);
    for (const auto& [bytes, known] : *table_) {
      if (kept.contains(known.caller)) continue;
      known.caller->revoked.store(true, std::memory_order_relaxed);
    }
  }
  if (anybody_ == nullptr) {
    anybody_.reset(
        new Caller{"", tenants_.at(std::string(kDefaultTenant)), kAllScopes});
  }
  table_ = table;
}

CallerPtr Auth::FindSame(const KeyEntry& key) const {
  if (table_ == nullptr) return nullptr;
  const auto [first, last] = table_->equal_range(FirstBytes(key.digest));
  for (auto at = first; at != last; ++at) {
    const Known& known = at->second;
    if (known.digest == key.digest && known.caller->id == key.id &&
        known.caller->scopes == key.scopes &&
        known.caller->expires_unix == key.expires_unix &&
        known.caller->tenant == tenants_.at(key.tenant)) {
      return known.caller;
    }
  }
  return nullptr;
}

Status Auth::ReadKeys() {
  KeyFile file;
  if (file_ != nullptr) {
    ASSIGN_OR_RETURN(const std::string text, file_->Read("api_keys_file"));
    auto parsed = ParseKeyFile(text);
    if (!parsed.ok()) {
      return parsed.status().Prefixed("api_keys_file is '" + file_->path() +
                                      "'");
    }
    file = *std::move(parsed);
  }
  MutexLock lock(mu_);
  UseFile(std::move(file));
  return OkStatus();
}

Status Auth::ReadJwks() {
  ASSIGN_OR_RETURN(const std::string text, jwks_file_->Read("jwt_jwks_file"));
  ASSIGN_OR_RETURN(std::vector<JsonWebKey> keys, ParseJwks(text));
  MutexLock lock(mu_);
  jwks_ = std::make_shared<const std::vector<JsonWebKey>>(std::move(keys));
  return OkStatus();
}

void Auth::Refresh() {
  for (WatchedFile* file : {file_.get(), jwks_file_.get()}) {
    if (file == nullptr) continue;
    {
      MutexLock lock(mu_);
      if (is_refreshing_ || !file->Changed()) continue;
      is_refreshing_ = true;
    }
    const Status used = file == jwks_file_.get() ? ReadJwks() : ReadKeys();
    if (used.ok()) {
      LogInfo("keys reloaded", {{"file", file->path()}});
    } else {
      LogWarning("keys kept", {{"why", "the changed file cannot be used"},
                               {"error", used.message()}});
    }
    MutexLock lock(mu_);
    is_refreshing_ = false;
  }
}

Status Auth::CheckStillValid(const Caller& caller) {
  if (!required()) return OkStatus();
  Refresh();
  if (caller.revoked.load(std::memory_order_relaxed)) {
    return Unauthenticated(
               "the key of this stream is no longer one of this server's; "
               "open a new stream with another key")
        .Because("invalid_api_key");
  }
  if (caller.expires_unix != 0 && UnixNow() >= caller.expires_unix) {
    return Unauthenticated(
               "the token of this stream has expired; open a new stream with "
               "another token")
        .Because("invalid_token");
  }
  return OkStatus();
}

StatusOr<CallerPtr> Auth::IdentifyToken(std::string_view token) {
  Refresh();
  std::shared_ptr<const std::vector<JsonWebKey>> keys;
  {
    MutexLock lock(mu_);
    keys = jwks_;
  }
  ASSIGN_OR_RETURN(const TokenClaims claims,
                   VerifyToken(token, *keys, token_rules_, UnixNow()));
  std::shared_ptr<Tenant> tenant;
  {
    MutexLock lock(mu_);
    const auto found = tenants_.find(claims.tenant);
    if (found != tenants_.end()) tenant = found->second;
  }
  if (tenant == nullptr) {
    return Unauthenticated(
               "the token is refused: its tenant is not one of the key file's")
        .Because("invalid_token");
  }
  return CallerPtr(new Caller{"token:" + claims.subject, std::move(tenant),
                              claims.scopes,
                              claims.expires_unix + kTokenLeewaySeconds});
}

StatusOr<CallerPtr> Auth::Identify(std::string_view authorization,
                                   std::string_view api_key) {
  if (!required()) return anybody_;
  const std::string_view bearer = BearerKey(authorization);
  if (jwks_file_ != nullptr && IsToken(bearer)) return IdentifyToken(bearer);
  Refresh();
  std::shared_ptr<const Table> table;
  {
    MutexLock lock(mu_);
    table = table_;
  }
  for (const std::string_view key : {bearer, api_key}) {
    if (key.empty()) continue;
    const Digest digest = Sha256(key);
    const auto [first, last] = table->equal_range(FirstBytes(digest));
    for (auto at = first; at != last; ++at) {
      if (CRYPTO_memcmp(at->second.digest.data(), digest.data(),
                        digest.size()) != 0) {
        continue;
      }
      const CallerPtr& caller = at->second.caller;
      if (caller->expires_unix == 0 || UnixNow() < caller->expires_unix) {
        return caller;
      }
      return Unauthenticated("the key '" + caller->id +
                             "' has expired; ask for a new one")
          .Because("invalid_api_key");
    }
  }
  const bool none = bearer.empty() && api_key.empty();
  return Unauthenticated(none
                             ? "this server needs an API key; send it as "
                               "'Authorization: Bearer KEY'"
                             : "the API key is not one of this server's; check "
                               "'Authorization: Bearer KEY'")
      .Because("invalid_api_key");
}

StatusOr<CallerPtr> Auth::CallerOf(const std::string& tenant) {
  Refresh();
  MutexLock lock(mu_);
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end()) {
    return Unauthenticated("the key file names no tenant '" + tenant +
                           "' any more; put it back")
        .Because("invalid_api_key");
  }
  return CallerPtr(new Caller{"batch", found->second, kAllScopes});
}

Status Auth::Check(const Caller& caller, Scope scope) const {
  if ((caller.scopes & static_cast<Scopes>(scope)) != 0) return OkStatus();
  const std::string name(ScopeName(scope));
  return Status(StatusCode::kPermissionDenied,
                "the key '" + caller.id + "' has not the scope '" + name +
                    "', which this needs; use another key, or ask the "
                    "operator for that scope")
      .Because("scope_missing");
}

}  // namespace millrace::server
