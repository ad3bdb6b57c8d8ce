// API keys as `Authorization: Bearer KEY` or `X-Api-Key: KEY`. Immutable;
// thread-safe. Keys are compared in constant time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "config/schema.h"

namespace millrace::server {

class Auth {
 public:
  // Reads api_key and api_key_file. FAILED_PRECONDITION when the host is not a
  // loopback address and there is neither a key nor --no-auth.
  static StatusOr<Auth> Create(const config::ServerSettings& settings);

  // Without keys every caller passes, whatever it sends (clients always send
  // something). UNAUTHENTICATED otherwise.
  Status Check(std::string_view authorization, std::string_view api_key) const;
  bool required() const { return !keys_.empty(); }

 private:
  std::vector<std::string> keys_;
};

}  // namespace millrace::server
