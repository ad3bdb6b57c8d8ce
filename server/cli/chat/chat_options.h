// The command line of `millrace chat`. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/base/status.h"
#include "server/cli/args.h"
#include "server/cli/chat/http_client.h"

namespace millrace::server {

struct ChatOptions {
  std::string url = "http://127.0.0.1:8000";
  TlsOptions tls;     // where the URL is https://
  std::string model;  // empty: the server's first
  std::string system;
  std::string api_key;
  std::optional<int64_t> max_tokens;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::string prompt;  // empty: talk line by line
  bool help = false;
};

// INVALID_ARGUMENT names the argument at fault.
StatusOr<ChatOptions> ParseChatOptions(Args args);

}  // namespace millrace::server
