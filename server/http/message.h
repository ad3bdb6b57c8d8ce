// One HTTP request and one HTTP answer, as routes see them: no sockets, no
// parser. Plain values; no thread rule beyond that of any value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/status.h"

namespace millrace::server::http {

struct HttpRequest {
  std::string method;  // "GET"
  std::string target;  // as sent
  std::string path;    // percent-decoded, without the query
  std::string query;   // as sent, without '?'
  bool http10 = false;
  bool keep_alive = true;
  std::vector<std::pair<std::string, std::string>> headers;  // lower-case names
  std::string body;

  // The first header of this (lower-case) name; empty if none.
  std::string_view Header(std::string_view name) const;
  bool HasHeader(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;  // further ones
  std::string body;
  Status error = {};  // why, for the log; the body is for the client
};

HttpResponse JsonResponse(int status, std::string body);
// OpenAI's error object, with Retry-After where the status carries one.
HttpResponse ErrorResponse(const Status& status);
// The Open Inference Protocol's {"error": "..."}.
HttpResponse OipErrorResponse(const Status& status);

// How a message gives the length of its body (RFC 9112, section 6).
enum class Framing { kContentLength, kChunked, kUntilClose, kNoBody };

// Status line and headers, blank line included. `now_unix` is for Date.
std::string RenderHead(const HttpResponse& response, Framing framing,
                       bool keep_alive, int64_t now_unix);
// One chunk of chunked transfer coding; empty `bytes` give an empty text, for
// an empty chunk would end the body.
std::string RenderChunk(std::string_view bytes);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// The value of a name in a query, as it was sent; empty: it is not there.
std::string_view QueryValue(std::string_view query, std::string_view name);
// "%41" → "A"; none when a '%' is not followed by two hexadecimal digits or
// the result holds a NUL.
std::optional<std::string> PercentDecoded(std::string_view text);

}  // namespace millrace::server::http
