#include "handlers/external/http_hints.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "config/base/json.h"
#include "config/base/utf8.h"

namespace millrace::handlers {
namespace {

constexpr size_t kMaxHeaders = 32;
constexpr size_t kMaxHeaderBytes = 4096;
constexpr size_t kMaxContentTypeBytes = 255;

// Of the message's form and of the connection.
constexpr std::string_view kOfServer[] = {"connection",
                                          "content-encoding",
                                          "content-length",
                                          "content-type",
                                          "date",
                                          "keep-alive",
                                          "server",
                                          "te",
                                          "trailer",
                                          "upgrade",
                                          "transfer-encoding",
                                          "x-request-id"};

bool IsName(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z') || kMarks.find(c) != kMarks.npos;
  });
}

bool IsValue(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= ' ' && c != 0x7f) || c == '\t'; });
}

std::string Lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

Status Wrong(const std::string& what) {
  return Internal("the handler answered with " + what).Because("handler_error");
}

}  // namespace

Status ReadHttpHints(std::string_view json, TaskResponse& response) {
  const auto hints = ParseJson(json);
  if (!hints.ok() || !hints->is_object()) {
    return Wrong("'" + std::string(kHttpHints) + "', which is no JSON object");
  }
  if (const auto status = hints->find("status"); status != hints->end()) {
    if (!status->is_number_integer() || *status < 200 || *status > 599) {
      return Wrong("the status " + Shortened(DumpJson(*status), 40) +
                   "; expected a whole number from 200 to 599");
    }
    response.http_status = status->get<int>();
  }
  const auto headers = hints->find("headers");
  if (headers == hints->end()) return OkStatus();
  if (!headers->is_object() || headers->size() > kMaxHeaders) {
    return Wrong("headers that are no JSON object of at most " +
                 std::to_string(kMaxHeaders));
  }
  for (const auto& [name, value] : headers->items()) {
    const auto* text = value.get_ptr<const std::string*>();
    if (!IsName(name) || text == nullptr || !IsValue(*text) ||
        name.size() + text->size() > kMaxHeaderBytes) {
      return Wrong("the header '" + Shortened(name, 100) +
                   "'; expected a name and a text of HTTP of at most " +
                   std::to_string(kMaxHeaderBytes) + " bytes");
    }
    if (std::ranges::count(kOfServer, Lower(name)) > 0) continue;
    response.http_headers.emplace_back(name, *text);
  }
  return OkStatus();
}

Status CheckContentType(std::string_view name) {
  const bool is_printable =
      std::ranges::all_of(name, [](char c) { return c >= ' ' && c <= '~'; });
  if (is_printable && name.size() <= kMaxContentTypeBytes) return OkStatus();
  return Wrong("a content type that is no printable ASCII of at most " +
               std::to_string(kMaxContentTypeBytes) + " bytes");
}

}  // namespace millrace::handlers
