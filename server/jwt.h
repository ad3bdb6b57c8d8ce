// JSON Web Tokens (RFC 7519), a second way to authenticate a request: signed by
// an identity provider, checked with public keys of a file (JWKS, RFC 7517).
//
//   ASSIGN_OR_RETURN(auto keys, ParseJwks(text));
//   ASSIGN_OR_RETURN(TokenClaims claims,
//                    VerifyToken(token, keys, {.issuer = "https://id"}, now));
//
// Algorithms are RS256 (keys of 2048 bits or more) and ES256 (P-256). The key
// decides which one holds, never the token, so "none" and HMAC with a public
// key are refused. A token must say until when it holds (exp). Claims that
// count:
//
//   iss, aud   must be those of the settings
//   exp, nbf   with a leeway of 60 s; iat is not looked at
//   sub        stands in logs
//   scope      "infer metrics": the scopes, among others that are ignored; or
//              `scp` or `scopes`, as a list
//   tenant     a tenant of the key file; default: "default"
//
// Pure functions; parsed keys are immutable.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "server/key_file.h"

struct evp_pkey_st;

namespace millrace::server {

// One public key of the file.
struct JsonWebKey {
  std::string id;      // empty: the file does not say
  bool is_ec = false;  // ES256, else RS256
  std::shared_ptr<evp_pkey_st> key;
};

// INVALID_ARGUMENT when the text is no JWKS, when a key in it cannot be used,
// or when it has none. Keys for encryption and of other kinds are left out.
StatusOr<std::vector<JsonWebKey>> ParseJwks(std::string_view text);

struct TokenRules {
  std::string issuer;    // empty: any
  std::string audience;  // empty: any
};

// Clocks may differ by so much.
inline constexpr int64_t kTokenLeewaySeconds = 60;

struct TokenClaims {
  std::string subject;
  std::string tenant;
  Scopes scopes = 0;
  int64_t expires_unix = 0;
};

// Whether a bearer value looks like a token: three parts.
bool IsToken(std::string_view bearer);

// UNAUTHENTICATED says what is wrong, without the token's text.
StatusOr<TokenClaims> VerifyToken(std::string_view token,
                                  const std::vector<JsonWebKey>& keys,
                                  const TokenRules& rules, int64_t now_unix);

}  // namespace millrace::server
