// One table from Status to what each protocol calls it. The HTTP status follows
// from the code, but a few refusals of the transport (a body too large, a wrong
// method) and a full disk have statuses of their own, chosen by the status'
// reason.
#include "server/error_map.h"

#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "config/base/json.h"

namespace millrace::server {
namespace {

struct Row {
  StatusCode code;
  int http;
  std::string_view openai_type;
};

constexpr Row kRows[] = {
    {StatusCode::kOk, 200, ""},
    {StatusCode::kInvalidArgument, 400, "invalid_request_error"},
    {StatusCode::kOutOfRange, 400, "invalid_request_error"},
    {StatusCode::kFailedPrecondition, 400, "invalid_request_error"},
    {StatusCode::kUnauthenticated, 401, "authentication_error"},
    {StatusCode::kPermissionDenied, 403, "permission_error"},
    {StatusCode::kNotFound, 404, "not_found_error"},
    {StatusCode::kAlreadyExists, 409, "conflict_error"},
    {StatusCode::kResourceExhausted, 429, "rate_limit_error"},
    {StatusCode::kCancelled, 499, "cancelled_error"},
    {StatusCode::kUnimplemented, 501, "not_implemented_error"},
    {StatusCode::kUnavailable, 503, "unavailable_error"},
    {StatusCode::kDeadlineExceeded, 504, "timeout_error"},
};
constexpr Row kAllElse = {StatusCode::kInternal, 500, "server_error"};

struct Refusal {
  std::string_view reason;
  int http;
};
constexpr Refusal kRefusals[] = {
    {"method_not_allowed", 405}, {"request_timeout", 408},
    {"payload_too_large", 413},  {"unsupported_media_type", 415},
    {"headers_too_large", 431},  {"disk_full", 507},
};

const Row& RowOf(StatusCode code) {
  for (const Row& row : kRows) {
    if (row.code == code) return row;
  }
  return kAllElse;
}

nlohmann::ordered_json TextOrNull(std::string_view text) {
  if (text.empty()) return nullptr;
  return std::string(text);
}

}  // namespace

int HttpStatusOf(const Status& status) {
  for (const Refusal& refusal : kRefusals) {
    if (refusal.reason == status.reason()) return refusal.http;
  }
  return RowOf(status.code()).http;
}

std::string OpenAiErrorBody(const Status& status) {
  nlohmann::ordered_json error = nlohmann::ordered_json::object();
  error["message"] = std::string(status.message());
  error["type"] = std::string(RowOf(status.code()).openai_type);
  error["param"] = TextOrNull(status.field());
  error["code"] = TextOrNull(status.reason());
  nlohmann::ordered_json body = nlohmann::ordered_json::object();
  body["error"] = std::move(error);
  return DumpJson(body);
}

std::string OipErrorBody(const Status& status) {
  nlohmann::ordered_json body = nlohmann::ordered_json::object();
  body["error"] = std::string(status.message());
  return DumpJson(body);
}

}  // namespace millrace::server
