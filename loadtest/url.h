// The address of the server: "https://host:port/prefix", "host:port", "host".
#pragma once

#include <string>
#include <string_view>

#include "config/base/status.h"

namespace millrace::loadtest {

struct Url {
  std::string host;
  std::string port;    // digits
  std::string prefix;  // "" or "/v1": without a slash at the end
  bool is_tls = false;
  std::string ca_file;    // of https, PEM; empty: the system's authorities
  bool insecure = false;  // any certificate will do

  std::string HostPort() const;  // for the Host header and gRPC
};

StatusOr<Url> ParseUrl(std::string_view text, std::string_view default_port);

}  // namespace millrace::loadtest
