// One HTTP/1.1 exchange over TCP or TLS, blocking but for a cancel function
// that is asked several times a second.
//
//   ASSIGN_OR_RETURN(HttpUrl url, ParseHttpUrl("http://127.0.0.1:8000"));
//   ASSIGN_OR_RETURN(int status, Exchange(url, {.target = "/v1/models"}, ...));
//
// Pure functions over their own socket; thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "config/base/status.h"

namespace millrace::server {

// What an https:// URL needs beyond the system's authorities.
struct TlsOptions {
  std::string ca_file;    // PEM; empty: the system's authorities
  std::string cert_file;  // PEM, our own certificate; empty: none
  std::string key_file;   // PEM; empty: in cert_file
  // PEM; the server must show one of these certificates, whatever name it has.
  std::string pinned_file;
  bool insecure = false;  // any certificate will do
};

struct HttpUrl {
  bool is_tls = false;
  TlsOptions tls = {};
  std::string host;
  std::string port;
  std::string prefix;     // path before the route, without a slash at the end
  std::string authority;  // as in the Host header
};
// INVALID_ARGUMENT for anything but http[s]://HOST[:PORT][/PATH].
StatusOr<HttpUrl> ParseHttpUrl(std::string_view url);

struct HttpCall {
  std::string method = "GET";
  std::string target;     // after the URL's prefix
  std::string body = {};  // JSON, when there is one
  std::string api_key = {};
  std::chrono::milliseconds silence_limit = std::chrono::minutes(10);
};

struct HttpHooks {
  // Body bytes as they arrive, with the status of the answer.
  std::function<void(int status, std::string_view bytes)> on_body = {};
  std::function<bool()> cancelled = {};  // may be empty
};

// The status code of the answer, once it is complete. UNAVAILABLE when no
// server listens, its certificate is not trusted or the connection breaks,
// CANCELLED, DEADLINE_EXCEEDED after silence.
StatusOr<int> Exchange(const HttpUrl& url, const HttpCall& call,
                       const HttpHooks& hooks);

}  // namespace millrace::server
