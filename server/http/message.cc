// Requests and responses as text. Heads of responses are few lines; writing
// them here keeps Beast's serialisers (most of its compile time) out of the
// program.
#include "server/http/message.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "server/error_map.h"
#include "server/version.h"

namespace millrace::server::http {
namespace {

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Status";
  }
}

void AppendHeader(std::string& head, std::string_view name,
                  std::string_view value) {
  head.append(name).append(": ").append(value).append("\r\n");
}

// IMF-fixdate (RFC 9110, section 5.6.7). Each thread keeps its last one, which
// serves all responses of a second; it is valid until the next call.
const std::string& DateText(int64_t now_unix) {
  thread_local int64_t of = -1;
  thread_local std::string date;
  if (of == now_unix) return date;
  const std::time_t seconds = static_cast<std::time_t>(now_unix);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[64];
  const size_t length =
      std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &utc);
  date.assign(text, length);
  of = now_unix;
  return date;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

void AddErrorHeaders(const Status& status, HttpResponse& response) {
  if (response.status == 401) {
    response.headers.emplace_back("WWW-Authenticate",
                                  "Bearer realm=\"millrace\"");
  }
  // OpenAI's clients try again after any 5xx, unless they are told.
  if (response.status == 507) {
    response.headers.emplace_back("X-Should-Retry", "false");
  }
  // A setting forbids it: another try changes nothing.
  if (status.reason() == "model_control_disabled") return;
  const int64_t ms = std::max<int64_t>(status.retry_after_ms(), 0);
  const bool estimated = response.status == 504 && ms > 0;
  if (response.status == 429 || response.status == 503 || estimated) {
    const int64_t seconds = std::max<int64_t>((ms + 999) / 1000, 1);
    response.headers.emplace_back("Retry-After", std::to_string(seconds));
    if (ms > 0) {
      // OpenAI's clients prefer this one, for it is finer.
      response.headers.emplace_back("Retry-After-Ms", std::to_string(ms));
    }
  }
}

}  // namespace

std::string_view HttpRequest::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

bool HttpRequest::HasHeader(std::string_view name) const {
  return std::any_of(headers.begin(), headers.end(),
                     [name](const auto& h) { return h.first == name; });
}

HttpResponse JsonResponse(int status, std::string body) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

HttpResponse ErrorResponse(const Status& status) {
  HttpResponse response =
      JsonResponse(HttpStatusOf(status), OpenAiErrorBody(status));
  AddErrorHeaders(status, response);
  response.error = status;
  return response;
}

HttpResponse OipErrorResponse(const Status& status) {
  HttpResponse response =
      JsonResponse(HttpStatusOf(status), OipErrorBody(status));
  AddErrorHeaders(status, response);
  response.error = status;
  return response;
}

std::string RenderHead(const HttpResponse& response, Framing framing,
                       bool keep_alive, int64_t now_unix) {
  std::string head;
  head.reserve(384);
  head.append("HTTP/1.1 ")
      .append(std::to_string(response.status))
      .append(" ")
      .append(ReasonPhrase(response.status))
      .append("\r\n");
  AppendHeader(head, "Date", DateText(now_unix));
  AppendHeader(head, "Server", std::string("millrace/").append(Version()));
  if (framing != Framing::kNoBody && !response.content_type.empty()) {
    AppendHeader(head, "Content-Type", response.content_type);
  }
  if (framing == Framing::kContentLength) {
    AppendHeader(head, "Content-Length", std::to_string(response.body.size()));
  } else if (framing == Framing::kChunked) {
    AppendHeader(head, "Transfer-Encoding", "chunked");
  }
  for (const auto& [name, value] : response.headers) {
    AppendHeader(head, name, value);
  }
  AppendHeader(head, "Connection", keep_alive ? "keep-alive" : "close");
  head.append("\r\n");
  return head;
}

std::string RenderChunk(std::string_view bytes) {
  if (bytes.empty()) return {};
  char size[24];
  const int digits = std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
  std::string chunk;
  chunk.reserve(bytes.size() + static_cast<size_t>(digits) + 2);
  chunk.append(size, static_cast<size_t>(digits));
  chunk.append(bytes).append("\r\n");
  return chunk;
}

std::string_view QueryValue(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    const size_t equals = std::min(pair.find('='), pair.size());
    if (pair.substr(0, equals) == name && equals < pair.size()) {
      return pair.substr(equals + 1);
    }
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return {};
}

std::optional<std::string> PercentDecoded(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = HexDigit(text[i + 1]);
      const int low = HexDigit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (c == '\0') return std::nullopt;
    decoded.push_back(c);
  }
  return decoded;
}

}  // namespace millrace::server::http
