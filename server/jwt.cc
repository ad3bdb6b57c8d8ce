// The parts of a token are read in the order of trust: shape, header,
// signature, and claims only once the signature holds.
#include "server/jwt.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "config/base/json.h"
#include "config/base/utf8.h"

namespace millrace::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxTokenBytes = 8 << 10;
constexpr size_t kMaxJwksBytes = 1 << 20;
constexpr size_t kMaxKeys = 100;
constexpr size_t kMaxSubjectBytes = 128;
constexpr int kLeastRsaBits = 2048;
constexpr int kMostRsaBits = 8192;
constexpr size_t kEcBytes = 32;  // of a coordinate, and of r and s
// Of headers and claims: small objects, where nothing may be said twice.
constexpr JsonLimits kTokenJson = {
    .max_depth = 8, .max_values = 1000, .unique_keys = true};
constexpr double kMaxTime = 253402300800;  // the year 10000

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* thing) const {
    Free(thing);
  }
};
using BigNumber = std::unique_ptr<BIGNUM, Freer<BN_free>>;
using ParamBuilder =
    std::unique_ptr<OSSL_PARAM_BLD, Freer<OSSL_PARAM_BLD_free>>;
using Params = std::unique_ptr<OSSL_PARAM, Freer<OSSL_PARAM_free>>;
using KeyContext = std::unique_ptr<EVP_PKEY_CTX, Freer<EVP_PKEY_CTX_free>>;
using DigestContext = std::unique_ptr<EVP_MD_CTX, Freer<EVP_MD_CTX_free>>;
using EcSignature = std::unique_ptr<ECDSA_SIG, Freer<ECDSA_SIG_free>>;

Status Refused(std::string_view why) {
  return Unauthenticated("the token is refused: " + std::string(why))
      .Because("invalid_token");
}

int Base64Value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '-') return 62;
  if (c == '_') return 63;
  return -1;
}

// base64url without padding (RFC 7515, section 2), each text in one way only.
std::optional<std::string> Decoded(std::string_view text) {
  if (text.size() % 4 == 1) return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size() * 3 / 4);
  unsigned pool = 0;
  int num_bits = 0;
  for (const char c : text) {
    const int value = Base64Value(c);
    if (value < 0) return std::nullopt;
    pool = (pool << 6 | static_cast<unsigned>(value)) & 0xffff;
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes.push_back(static_cast<char>(pool >> num_bits & 0xff));
  }
  if ((pool & ((1u << num_bits) - 1)) != 0) return std::nullopt;
  return bytes;
}

std::string_view Text(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return {};
  return found->get_ref<const std::string&>();
}

BigNumber NumberOf(const std::string& bytes) {
  return BigNumber(
      BN_bin2bn(reinterpret_cast<const unsigned char*>(bytes.data()),
                static_cast<int>(bytes.size()), nullptr));
}

std::shared_ptr<EVP_PKEY> MakeKey(const char* type, OSSL_PARAM* params) {
  const KeyContext context(EVP_PKEY_CTX_new_from_name(nullptr, type, nullptr));
  EVP_PKEY* key = nullptr;
  if (context == nullptr || params == nullptr ||
      EVP_PKEY_fromdata_init(context.get()) != 1 ||
      EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_PUBLIC_KEY, params) !=
          1) {
    return nullptr;
  }
  std::shared_ptr<EVP_PKEY> owned(key, EVP_PKEY_free);
  const KeyContext check(EVP_PKEY_CTX_new_from_pkey(nullptr, key, nullptr));
  if (check == nullptr || EVP_PKEY_public_check(check.get()) != 1) {
    return nullptr;
  }
  return owned;
}

std::shared_ptr<EVP_PKEY> RsaKey(const Json& entry) {
  const auto modulus = Decoded(Text(entry, "n"));
  const auto exponent = Decoded(Text(entry, "e"));
  if (!modulus || !exponent || modulus->empty() || exponent->empty() ||
      exponent->size() > 8 || modulus->size() > kMostRsaBits / 8) {
    return nullptr;
  }
  const BigNumber n = NumberOf(*modulus);
  const BigNumber e = NumberOf(*exponent);
  if (n == nullptr || e == nullptr || BN_num_bits(n.get()) < kLeastRsaBits ||
      BN_num_bits(n.get()) > kMostRsaBits) {
    return nullptr;
  }
  const ParamBuilder builder(OSSL_PARAM_BLD_new());
  OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_N, n.get());
  OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_E, e.get());
  const Params params(OSSL_PARAM_BLD_to_param(builder.get()));
  return MakeKey("RSA", params.get());
}

std::shared_ptr<EVP_PKEY> EcKey(const Json& entry) {
  const auto x = Decoded(Text(entry, "x"));
  const auto y = Decoded(Text(entry, "y"));
  if (!x || !y || x->size() != kEcBytes || y->size() != kEcBytes) {
    return nullptr;
  }
  const std::string point = "\x04" + *x + *y;  // uncompressed (SEC 1)
  const ParamBuilder builder(OSSL_PARAM_BLD_new());
  OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME,
                                  "prime256v1", 0);
  OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY,
                                   point.data(), point.size());
  const Params params(OSSL_PARAM_BLD_to_param(builder.get()));
  return MakeKey("EC", params.get());
}

// r and s side by side (RFC 7518, section 3.4) to the form that OpenSSL takes.
std::string DerSignature(const std::string& raw) {
  if (raw.size() != 2 * kEcBytes) return {};
  const EcSignature pair(ECDSA_SIG_new());
  BigNumber r = NumberOf(raw.substr(0, kEcBytes));
  BigNumber s = NumberOf(raw.substr(kEcBytes));
  if (pair == nullptr || r == nullptr || s == nullptr ||
      ECDSA_SIG_set0(pair.get(), r.get(), s.get()) != 1) {
    return {};
  }
  static_cast<void>(r.release());  // the pair's now
  static_cast<void>(s.release());
  unsigned char* der = nullptr;
  const int size = i2d_ECDSA_SIG(pair.get(), &der);
  if (size <= 0) return {};
  std::string out(reinterpret_cast<const char*>(der),
                  static_cast<size_t>(size));
  OPENSSL_free(der);
  return out;
}

bool SignatureHolds(const JsonWebKey& key, std::string_view text,
                    const std::string& raw) {
  const std::string signature = key.is_ec ? DerSignature(raw) : raw;
  const DigestContext context(EVP_MD_CTX_new());
  return !signature.empty() && context != nullptr &&
         EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr,
                              key.key.get()) == 1 &&
         EVP_DigestVerify(
             context.get(),
             reinterpret_cast<const unsigned char*>(signature.data()),
             signature.size(),
             reinterpret_cast<const unsigned char*>(text.data()),
             text.size()) == 1;
}

// Seconds since 1970; none when it is absent or no time.
std::optional<int64_t> Time(const Json& claims, const char* name) {
  const auto found = claims.find(name);
  if (found == claims.end() || !found->is_number()) return std::nullopt;
  const double value = found->get<double>();
  if (!(value >= 0 && value < kMaxTime)) return std::nullopt;
  return static_cast<int64_t>(value);
}

bool IsForUs(const Json& claims, const std::string& audience) {
  const auto found = claims.find("aud");
  if (found == claims.end()) return false;
  if (found->is_string()) return *found == audience;
  return found->is_array() &&
         std::any_of(found->begin(), found->end(), [&](const Json& each) {
           return each.is_string() && each == audience;
         });
}

Scopes ScopesIn(std::string_view words) {
  Scopes scopes = 0;
  while (!words.empty()) {
    const size_t space = std::min(words.find(' '), words.size());
    scopes |= ScopeOf(words.substr(0, space));
    words.remove_prefix(std::min(space + 1, words.size()));
  }
  return scopes;
}

Scopes ScopesOf(const Json& claims) {
  Scopes scopes = ScopesIn(Text(claims, "scope"));
  for (const char* name : {"scp", "scopes"}) {
    const auto found = claims.find(name);
    if (found == claims.end()) continue;
    if (found->is_string()) scopes |= ScopesIn(Text(claims, name));
    if (!found->is_array()) continue;
    for (const Json& each : *found) {
      if (each.is_string()) scopes |= ScopeOf(each.get<std::string>());
    }
  }
  return scopes;
}

// What a log may show: visible ASCII without quotes.
std::string Shown(std::string_view subject) {
  std::string shown = Shortened(subject, kMaxSubjectBytes);
  for (char& c : shown) {
    if (c <= ' ' || c >= 0x7f || c == '"' || c == '\\') c = '?';
  }
  return shown;
}

StatusOr<TokenClaims> CheckClaims(const Json& claims, const TokenRules& rules,
                                  int64_t now_unix) {
  const std::optional<int64_t> expires = Time(claims, "exp");
  if (!expires.has_value())
    return Refused("it does not say when it ends (exp)");
  if (now_unix >= *expires + kTokenLeewaySeconds)
    return Refused("it has expired");
  if (claims.contains("nbf")) {
    const std::optional<int64_t> begins = Time(claims, "nbf");
    if (!begins.has_value()) return Refused("its nbf is no time");
    if (now_unix < *begins - kTokenLeewaySeconds) {
      return Refused("it does not hold yet");
    }
  }
  if (!rules.issuer.empty() && Text(claims, "iss") != rules.issuer) {
    return Refused("it was not issued by jwt_issuer (iss)");
  }
  if (!rules.audience.empty() && !IsForUs(claims, rules.audience)) {
    return Refused("it is not for jwt_audience (aud)");
  }
  TokenClaims result;
  result.subject = Shown(Text(claims, "sub"));
  result.tenant = Text(claims, "tenant");
  if (result.tenant.empty()) result.tenant = kDefaultTenant;
  result.scopes = ScopesOf(claims);
  result.expires_unix = *expires;
  return result;
}

}  // namespace

StatusOr<std::vector<JsonWebKey>> ParseJwks(std::string_view text) {
  if (text.size() > kMaxJwksBytes) {
    return InvalidArgument("the JWKS has " + std::to_string(text.size()) +
                           " bytes but may have " +
                           std::to_string(kMaxJwksBytes));
  }
  ASSIGN_OR_RETURN(const Json root, ParseJson(text));
  const auto list = root.is_object() ? root.find("keys") : root.end();
  if (!root.is_object() || list == root.end() || !list->is_array() ||
      list->size() > kMaxKeys) {
    return InvalidArgument("the JWKS must be an object with a list `keys` of " +
                           std::to_string(kMaxKeys) + " keys at most");
  }
  std::vector<JsonWebKey> keys;
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& entry = (*list)[i];
    if (!entry.is_object()) {
      return InvalidArgument("keys[" + std::to_string(i) +
                             "] of the JWKS is no object");
    }
    const std::string_view type = Text(entry, "kty");
    const std::string_view algorithm = Text(entry, "alg");
    const bool is_ec = type == "EC" && Text(entry, "crv") == "P-256";
    const bool signs =
        Text(entry, "use").empty() || Text(entry, "use") == "sig";
    if ((!is_ec && type != "RSA") || !signs ||
        (!algorithm.empty() && algorithm != (is_ec ? "ES256" : "RS256"))) {
      continue;
    }
    JsonWebKey key{std::string(Text(entry, "kid")), is_ec,
                   is_ec ? EcKey(entry) : RsaKey(entry)};
    if (key.key == nullptr) {
      return InvalidArgument("keys[" + std::to_string(i) +
                             "] of the JWKS cannot be used; RSA keys have " +
                             std::to_string(kLeastRsaBits) + " to " +
                             std::to_string(kMostRsaBits) +
                             " bits, EC keys are points of P-256");
    }
    keys.push_back(std::move(key));
  }
  if (keys.empty()) {
    return InvalidArgument(
        "the JWKS has no key for signatures by RS256 or ES256");
  }
  return keys;
}

bool IsToken(std::string_view bearer) {
  return std::count(bearer.begin(), bearer.end(), '.') == 2;
}

StatusOr<TokenClaims> VerifyToken(std::string_view token,
                                  const std::vector<JsonWebKey>& keys,
                                  const TokenRules& rules, int64_t now_unix) {
  if (token.size() > kMaxTokenBytes) {
    return Refused("it has more than " + std::to_string(kMaxTokenBytes) +
                   " bytes");
  }
  const size_t first = token.find('.');
  const size_t second = token.find('.', first + 1);
  if (!IsToken(token)) return Refused("it has not three parts");
  const auto header_text = Decoded(token.substr(0, first));
  const auto claims_text = Decoded(token.substr(first + 1, second - first - 1));
  const auto signature = Decoded(token.substr(second + 1));
  if (!header_text || !claims_text || !signature) {
    return Refused("a part is no base64url");
  }
  const StatusOr<Json> header = ParseJson(*header_text, kTokenJson);
  if (!header.ok() || !header->is_object()) {
    return Refused("its header is no JSON object");
  }
  const std::string_view algorithm = Text(*header, "alg");
  if (algorithm != "RS256" && algorithm != "ES256") {
    return Refused("its algorithm is neither RS256 nor ES256");
  }
  // Extensions that must be understood (RFC 7515, section 4.1.11): none is.
  if (header->contains("crit")) return Refused("it has critical extensions");
  const std::string_view id = Text(*header, "kid");
  const std::string_view signed_text = token.substr(0, second);
  const bool holds =
      std::any_of(keys.begin(), keys.end(), [&](const JsonWebKey& key) {
        return (algorithm == "ES256") == key.is_ec &&
               (id.empty() || key.id.empty() || key.id == id) &&
               SignatureHolds(key, signed_text, *signature);
      });
  if (!holds) return Refused("no key of jwt_jwks_file signed it");
  const StatusOr<Json> claims = ParseJson(*claims_text, kTokenJson);
  if (!claims.ok() || !claims->is_object()) {
    return Refused("its claims are no JSON object");
  }
  return CheckClaims(*claims, rules, now_unix);
}

}  // namespace millrace::server
