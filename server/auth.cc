// API keys. The comparison looks at every byte of every key, also behind the
// first key that fits, so that its time says nothing about how much of a wrong
// key was right.
#include "server/auth.h"

#include <algorithm>
#include <cctype>
#include <fstream>

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

// The key of "Bearer KEY", the scheme in any case (RFC 9110, section 11.1).
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

// Its time depends on the lengths alone.
bool SameBytes(std::string_view key, std::string_view given) {
  unsigned difference = key.size() == given.size() ? 0 : 1;
  for (size_t i = 0; i < key.size(); ++i) {
    const char other = given.empty() ? '\0' : given[i % given.size()];
    difference |= static_cast<unsigned char>(key[i] ^ other);
  }
  return difference == 0;
}

}  // namespace

StatusOr<Auth> Auth::Create(const config::ServerSettings& settings) {
  Auth auth;
  const auto add = [&auth](std::string_view key) {
    key = Trimmed(key);
    if (!key.empty()) auth.keys_.emplace_back(key);
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
  if (keys_were_wanted && auth.keys_.empty()) {
    return FailedPrecondition(
               "api_key or api_key_file is set but holds no key; give one key "
               "a line, or remove the setting")
        .At("api_key");
  }
  if (auth.keys_.empty() && !settings.no_auth && !IsLoopback(settings.host)) {
    return FailedPrecondition(
               "host is '" + settings.host +
               "', which other machines can reach, and there is no API key; "
               "set api_key or api_key_file, or say --no-auth")
        .At("host");
  }
  return auth;
}

Status Auth::Check(std::string_view authorization,
                   std::string_view api_key) const {
  if (!required()) return OkStatus();
  const std::string_view bearer = BearerKey(authorization);
  bool known = false;
  for (const std::string& key : keys_) {
    known |= SameBytes(key, bearer);
    known |= SameBytes(key, api_key);
  }
  if (known) return OkStatus();
  const bool none = bearer.empty() && api_key.empty();
  return Unauthenticated(none
                             ? "this server wants an API key; send it as "
                               "'Authorization: Bearer KEY'"
                             : "the API key is not one of this server's; check "
                               "'Authorization: Bearer KEY'")
      .Because("invalid_api_key");
}

}  // namespace millrace::server
