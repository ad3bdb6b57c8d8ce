// Bytes of one connection to one HTTP/1.x request, by Beast's parser under
// limits. Bytes are pushed in as they come; nothing here reads or waits.
//
//   RequestParser parser({.header_bytes = 16384, .body_bytes = 1 << 26});
//   ASSIGN_OR_RETURN(size_t taken, parser.Put(input));   // again with the rest
//   if (parser.head_done()) ... parser.head() ...
//   if (parser.done()) HttpRequest request = parser.Take();
//
// Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "config/base/status.h"
#include "config/schema.h"
#include "server/http/message.h"

namespace millrace::server::http {

class RequestParser {
 public:
  struct Limits {
    int64_t header_bytes = config::ServerSettings::kMaxHeaderBytes;
    int64_t body_bytes = config::ServerSettings::kMaxInputBytes;
  };
  explicit RequestParser(const Limits& limits);
  ~RequestParser();

  // How many bytes of the front were taken; 0 means that more must stand
  // together first. Stops at the end of the head and at the end of the
  // request. Failures end the connection: their status carries the reason of
  // the transport refusal where it has one.
  StatusOr<size_t> Put(std::string_view input);

  bool head_done() const;
  bool done() const;
  // After head_done().
  const HttpRequest& head() const;
  bool expects_continue() const;
  // Bytes of the body still to come; none when it is chunked.
  std::optional<uint64_t> body_left() const;
  // After done(): the request with its body.
  HttpRequest Take();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::server::http
