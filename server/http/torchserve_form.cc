#include "server/http/torchserve_form.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "config/base/json.h"
#include "config/base/log.h"
#include "config/base/utf8.h"
#include "server/http/multipart.h"
#include "server/http/pool_work.h"
#include "server/http/task_request.h"
#include "server/torchserve/error_form.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxFields = 1000;

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

// Of text: escapes stand for all else in a form.
bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte >= 0x20 && byte < 0x7f) || c == '\t' || c == '\r' || c == '\n';
  });
}

}  // namespace

HttpResponse TorchServeResponse(int status, std::string body) {
  HttpResponse response = JsonResponse(status, std::move(body));
  response.headers.emplace_back("Pragma", "no-cache");
  response.headers.emplace_back("Cache-Control",
                                "no-cache; no-store, must-revalidate, private");
  response.headers.emplace_back("Expires", "Thu, 01 Jan 1970 00:00:00 UTC");
  return response;
}

HttpResponse TorchServeStatus(int status, std::string_view text) {
  return TorchServeResponse(status,
                            DumpJson(Json{{"status", std::string(text)}}));
}

HttpResponse TorchServeErrorResponse(const Status& status) {
  const torchserve::ErrorForm form = torchserve::ErrorFormOf(status);
  HttpResponse response = TorchServeResponse(
      form.code, DumpJson(Json{{"code", form.code},
                               {"type", std::string(form.type)},
                               {"message", std::string(status.message())}}));
  if (status.retry_after_ms() > 0) {
    response.headers.emplace_back(
        "Retry-After", std::to_string((status.retry_after_ms() + 999) / 1000));
  }
  response.error = status;
  return response;
}

Status CheckMayUse(const Exchange& exchange, const std::string& name,
                   Status missing) {
  return MayUse(exchange, name) ? OkStatus() : std::move(missing);
}

bool IsTorchServePath(std::string_view path) {
  constexpr std::string_view kTheirs[] = {
      "/ping",   "/predictions", "/explanations", "/api-description",
      "/models", "/invocations", "/wfpredict",    "/workflows",
      "/token",  "/metrics"};
  if (path == "/") return true;
  return std::any_of(
      std::begin(kTheirs), std::end(kTheirs), [&](std::string_view each) {
        return path.starts_with(each) &&
               (path.size() == each.size() || path[each.size()] == '/');
      });
}

StatusOr<Fields> ParseFields(std::string_view text) {
  Fields fields;
  while (!text.empty()) {
    const size_t end = std::min(text.find('&'), text.size());
    const std::string_view field = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (field.empty()) continue;
    if (fields.size() == kMaxFields) {
      return InvalidArgument("there are more than " +
                             std::to_string(kMaxFields) + " fields");
    }
    const size_t equals = std::min(field.find('='), field.size());
    std::optional<std::string> halves[2];
    for (const bool is_value : {false, true}) {
      std::string half(is_value
                           ? field.substr(std::min(equals + 1, field.size()))
                           : field.substr(0, equals));
      std::replace(half.begin(), half.end(), '+', ' ');
      halves[is_value ? 1 : 0] = PercentDecoded(half);
    }
    if (!halves[0].has_value() || !halves[1].has_value()) {
      return InvalidArgument("the field '" + Shortened(field, 100) +
                             "' has a broken %-escape");
    }
    fields.emplace_back(*std::move(halves[0]), *std::move(halves[1]));
  }
  return fields;
}

const std::string* FindField(const Fields& fields, std::string_view name) {
  for (const auto& [key, value] : fields) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::optional<int64_t> NumberField(const Fields& fields,
                                   std::string_view name) {
  const std::string* text = FindField(fields, name);
  if (text == nullptr || text->empty()) return std::nullopt;
  std::string_view digits = *text;
  if (digits.starts_with('+') && !digits.starts_with("+-")) {
    digits.remove_prefix(1);
  }
  int32_t value = 0;
  const auto [end, ec] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (ec == std::errc() && end == digits.data() + digits.size()) return value;
  LogWarning("parameter not taken: no whole number of 32 bits",
             {{"parameter", name}, {"value", Shortened(*text, 100)}});
  return std::nullopt;
}

bool BoolField(const Fields& fields, std::string_view name, bool otherwise) {
  const std::string* text = FindField(fields, name);
  return text == nullptr ? otherwise : Lower(*text) == "true";
}

StatusOr<std::vector<handlers::TaskPart>> ReadParts(
    std::string_view content_type, std::string body) {
  const std::string type = MediaType(content_type);
  std::vector<handlers::TaskPart> parts;
  if (type == "multipart/form-data") {
    ASSIGN_OR_RETURN(std::vector<FormPart> form,
                     ParseFormData(content_type, body,
                                   {.max_parts = kMaxFields, .strict = false}));
    for (FormPart& part : form) {
      parts.push_back({.name = std::move(part.name),
                       .content_type = std::move(part.content_type),
                       .bytes = std::string(part.data)});
    }
    return parts;
  }
  // What curl -d says of any body; a form has names, JSON has brackets, and a
  // picture has bytes that are no text.
  const size_t first = body.find_first_not_of(" \t\r\n");
  const bool is_form = type == "application/x-www-form-urlencoded" &&
                       body.find('=') != std::string::npos &&
                       body.find_first_of("[{\"") != first && IsAscii(body);
  if (!is_form) {
    parts.push_back({.content_type = type, .bytes = std::move(body)});
    return parts;
  }
  ASSIGN_OR_RETURN(Fields fields, ParseFields(body));
  for (auto& [name, value] : fields) {
    parts.push_back({.name = std::move(name), .bytes = std::move(value)});
  }
  return parts;
}

}  // namespace millrace::server::http
