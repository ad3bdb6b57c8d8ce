// One request before the measurement: the names of models, metadata, lengths
// in tokens. Blocks for at most ten seconds.
#pragma once

#include <string>
#include <string_view>

#include "config/base/status.h"
#include "loadtest/options.h"

namespace millrace::loadtest {

struct FetchReply {
  int status = 0;
  std::string body;
};

// UNAVAILABLE when no whole reply came.
StatusOr<FetchReply> Fetch(const Options& options, std::string_view method,
                           std::string_view path, std::string_view body = "");

// The bytes of an HTTP/1.1 request with the headers of the options.
std::string HttpRequest(const Options& options, std::string_view method,
                        std::string_view path, std::string_view body,
                        std::string_view content_type = "application/json",
                        std::string_view more_headers = "");

}  // namespace millrace::loadtest
