// Triton's settings while the server runs: its log, and traces, whose form is
// not offered.
#include <nlohmann/json.hpp>
#include <string>

#include "config/base/json.h"
#include "handlers/json_fields.h"
#include "server/http/message.h"
#include "server/http/pool_work.h"
#include "server/http/routes.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

void SendLogSettings(const LogSettings& settings, Exchange& exchange) {
  exchange.Send(
      JsonResponse(200, DumpJson(Json{{"log_file", ""},
                                      {"log_info", settings.info},
                                      {"log_warning", settings.warning},
                                      {"log_error", settings.error},
                                      {"log_verbose_level", settings.verbose},
                                      {"log_format", settings.format}})));
}

// What is not named stays; names that are not known are left alone, as Triton
// does.
Status ChangeLog(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  if (handlers::FindField(body, "log_file") != nullptr) {
    return InvalidArgument(
               "log_file cannot be set: the log goes to the standard error "
               "stream; redirect that")
        .At("log_file");
  }
  LogSettings settings = site.services.state->log.Get();
  const auto read = [&](const char* name, bool& value) -> Status {
    ASSIGN_OR_RETURN(const auto given, handlers::ReadBool(body, name));
    value = given.value_or(value);
    return OkStatus();
  };
  RETURN_IF_ERROR(read("log_info", settings.info));
  RETURN_IF_ERROR(read("log_warning", settings.warning));
  RETURN_IF_ERROR(read("log_error", settings.error));
  ASSIGN_OR_RETURN(const auto verbose,
                   handlers::ReadInt(body, "log_verbose_level",
                                     {.min = 0, .max = UINT32_MAX}));
  settings.verbose =
      static_cast<uint32_t>(verbose.value_or(int64_t{settings.verbose}));
  ASSIGN_OR_RETURN(const auto format, handlers::ReadString(body, "log_format"));
  settings.format = format.value_or(settings.format);
  RETURN_IF_ERROR(site.services.state->log.Set(settings));
  SendLogSettings(settings, *exchange);
  return OkStatus();
}

void SendTraceSettings(Exchange& exchange) {
  exchange.Send(
      JsonResponse(200, DumpJson(Json{{"trace_level", Json::array({"OFF"})},
                                      {"trace_rate", "1000"},
                                      {"trace_count", "-1"},
                                      {"log_frequency", "0"},
                                      {"trace_file", ""},
                                      {"trace_mode", "triton"}})));
}

Status ChangeTrace(const Site&, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  const Json* level = handlers::FindField(body, "trace_level");
  if (level != nullptr && *level != "OFF" && *level != Json::array({"OFF"})) {
    return InvalidArgument("trace_level is " + handlers::Shown(*level) +
                           " but traces of this form are not offered; use "
                           "POST /debug/trace, or otlp_endpoint for spans of "
                           "requests")
        .At("trace_level");
  }
  SendTraceSettings(*exchange);
  return OkStatus();
}

}  // namespace

void ServeLogSettings(const Site& site,
                      const std::shared_ptr<Exchange>& exchange) {
  SendLogSettings(site.services.state->log.Get(), *exchange);
}

void ServeChangeLog(const Site& site,
                    const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, ChangeLog, OipErrorResponse);
}

void ServeTraceSettings(const Site&,
                        const std::shared_ptr<Exchange>& exchange) {
  SendTraceSettings(*exchange);
}

void ServeChangeTrace(const Site& site,
                      const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, ChangeTrace, OipErrorResponse);
}

}  // namespace millrace::server::http
