// JSON Web Tokens and the file of their keys. The first byte says which: '{' is
// a JWKS, anything else a token. None may pass: the fuzzer can sign nothing,
// and the signed seeds are of another issuer.
#include <cstdlib>
#include <string_view>
#include <vector>

#include "server/jwt.h"

namespace {

// Public keys; their private halves were thrown away.
constexpr std::string_view kJwks =
    R"({"keys": [
  {"kty": "EC", "crv": "P-256", "kid": "ec",
   "x": "wWExNp6VwMLanWLyMpMvOWgwcI7PrzerW0TOjctjdyY",
   "y": "4HY2Ns6um9WOrgwe9coTAlWYmsG-mEJ6XQNjbFhCAjI"},
  {"kty": "RSA", "kid": "rsa", "e": "AQAB",
   "n": ")"
    "lQyl2pYOPVs4JW8ZLHItXf8E0vUt1N_DdPyx3j5fJMxibXahVUGlrJ6THnWI"
    "bcI_pgDkiSztWiLZL-WSUSLvUhTxeisEyRV0cwg5x36ioDt2leWAjhiZV859"
    "fnXFc_J8cO9ToORWk_D4M_jKJgCUzlpnB5w5ypvURR-d6T9_IpGdh4f887Lc"
    "JiEzBVs2ECed61142HagcM4LMHHxoT46i_YT5zqDxBcYWn-vUOawEiyu6bf1"
    "c_VPy9e10HtyjIO9VbsRBWZwjTSApHr_E05SYb_qsdTDbmG2JynbEVvzQcx1"
    "UTib3f8pdvMsbKgAI8psNdjkWEfBaOlBlLNUFMUmBw"
    R"("}]})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace::server;
  static const std::vector<JsonWebKey> keys = *ParseJwks(kJwks);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (!text.empty() && text.front() == '{') {
    const auto parsed = ParseJwks(text);
    if (parsed.ok() && parsed->empty()) std::abort();
    return 0;
  }
  if (VerifyToken(text, keys, {"issuer", "audience"}, 1'700'000'000).ok()) {
    std::abort();
  }
  return 0;
}
