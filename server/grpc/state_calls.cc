#include "server/grpc/state_calls.h"

#include <string>
#include <utility>

#include "open_inference_grpc.pb.h"

namespace millrace::server {
namespace {

using LogValue = inference::LogSettingsRequest::SettingValue;

Status ReadSwitch(const std::string& name, const LogValue& value, bool& to) {
  if (value.parameter_choice_case() != LogValue::kBoolParam) {
    return InvalidArgument(name + " is not a bool").At(name);
  }
  to = value.bool_param();
  return OkStatus();
}

Status ReadLogSetting(const std::string& name, const LogValue& value,
                      LogSettings& settings) {
  if (name == "log_info") return ReadSwitch(name, value, settings.info);
  if (name == "log_warning") return ReadSwitch(name, value, settings.warning);
  if (name == "log_error") return ReadSwitch(name, value, settings.error);
  if (name == "log_verbose_level") {
    if (value.parameter_choice_case() != LogValue::kUint32Param) {
      return InvalidArgument(name + " is not a whole number").At(name);
    }
    settings.verbose = value.uint32_param();
  } else if (name == "log_format") {
    if (value.parameter_choice_case() != LogValue::kStringParam) {
      return InvalidArgument(name + " is not a string").At(name);
    }
    settings.format = value.string_param();
  } else if (name == "log_file") {
    return InvalidArgument(
               "log_file cannot be set: the log goes to the standard error "
               "stream; redirect that")
        .At(name);
  }
  return OkStatus();
}

}  // namespace

Status RegisterRegion(
    const inference::SystemSharedMemoryRegisterRequest& request,
    SharedRegions& regions) {
  return regions.Register({.name = request.name(),
                           .key = request.key(),
                           .offset = request.offset(),
                           .byte_size = request.byte_size()});
}

Status DescribeRegions(
    const inference::SystemSharedMemoryStatusRequest& request,
    const SharedRegions& regions,
    inference::SystemSharedMemoryStatusResponse* response) {
  ASSIGN_OR_RETURN(const auto list, regions.List(request.name()));
  for (const SharedRegion& region : list) {
    auto& status = (*response->mutable_regions())[region.name];
    status.set_name(region.name);
    status.set_key(region.key);
    status.set_offset(region.offset);
    status.set_byte_size(region.byte_size);
  }
  return OkStatus();
}

Status ChangeLogSettings(const inference::LogSettingsRequest& request,
                         LogControl& log,
                         inference::LogSettingsResponse* response) {
  LogSettings settings = log.Get();
  for (const auto& [name, value] : request.settings()) {
    RETURN_IF_ERROR(ReadLogSetting(name, value, settings));
  }
  if (!request.settings().empty()) RETURN_IF_ERROR(log.Set(settings));
  auto& told = *response->mutable_settings();
  told["log_file"].set_string_param("");
  told["log_info"].set_bool_param(settings.info);
  told["log_warning"].set_bool_param(settings.warning);
  told["log_error"].set_bool_param(settings.error);
  told["log_verbose_level"].set_uint32_param(settings.verbose);
  told["log_format"].set_string_param(settings.format);
  return OkStatus();
}

Status ChangeTraceSettings(const inference::TraceSettingRequest& request,
                           inference::TraceSettingResponse* response) {
  const auto level = request.settings().find("trace_level");
  if (level != request.settings().end()) {
    for (const std::string& value : level->second.value()) {
      if (value == "OFF") continue;
      return InvalidArgument("trace_level is '" + value +
                             "' but traces of this form are not offered; use "
                             "POST /debug/trace, or otlp_endpoint for spans of "
                             "requests")
          .At("trace_level");
    }
  }
  constexpr std::pair<const char*, const char*> kSettings[] = {
      {"trace_level", "OFF"}, {"trace_rate", "1000"}, {"trace_count", "-1"},
      {"log_frequency", "0"}, {"trace_file", ""},     {"trace_mode", "triton"}};
  for (const auto& [name, value] : kSettings) {
    (*response->mutable_settings())[name].add_value(value);
  }
  return OkStatus();
}

}  // namespace millrace::server
