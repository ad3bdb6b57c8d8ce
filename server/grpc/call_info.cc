// A request id from the client goes into logs and headers, so only short ids of
// plain visible characters are taken over; any other gets one of ours.
#include "server/grpc/call_info.h"

#include <grpcpp/server_context.h>

#include <chrono>
#include <optional>
#include <string_view>

#include "server/request_id.h"

namespace millrace::server {
namespace {

std::string_view Metadata(const ::grpc::CallbackServerContext& context,
                          const char* key) {
  const auto& all = context.client_metadata();
  const auto found = all.find(key);
  if (found == all.end()) return {};
  return {found->second.data(), found->second.size()};
}

std::vector<std::pair<std::string, std::string>> FieldsOf(
    const ::grpc::CallbackServerContext& context) {
  std::vector<std::pair<std::string, std::string>> fields;
  const auto& all = context.client_metadata();
  for (auto at = all.lower_bound("x-");
       at != all.end() && at->first.starts_with("x-") &&
       fields.size() < CallInfo::kMaxFields;
       ++at) {
    if (at->first == "x-request-id" || at->first == "x-api-key") continue;
    fields.emplace_back(std::string(at->first.data(), at->first.size()),
                        std::string(at->second.data(), at->second.size()));
  }
  return fields;
}

// What a key must be good for; none: any key will do.
std::optional<Scope> ScopeOf(GrpcRoute route) {
  switch (route) {
    case GrpcRoute::kModelInfer:
    case GrpcRoute::kModelStreamInfer:
    case GrpcRoute::kSharedMemory:
    case GrpcRoute::kTorchServePredict:
      return Scope::kInfer;
    case GrpcRoute::kModelStatistics:
      return Scope::kMetrics;
    case GrpcRoute::kRepositoryIndex:
    case GrpcRoute::kRepositoryModelLoad:
    case GrpcRoute::kRepositoryModelUnload:
    case GrpcRoute::kTraceSetting:
    case GrpcRoute::kLogSettings:
    case GrpcRoute::kTorchServeManage:
      return Scope::kManage;
    default:
      return std::nullopt;
  }
}

}  // namespace

CallReader::CallReader(Auth* auth, const RequestTraces* traces,
                       const Clock* clock, bool management_apart)
    : auth_(auth),
      traces_(traces),
      clock_(clock),
      management_apart_(management_apart) {}

CallInfo CallReader::Read(::grpc::CallbackServerContext& context) {
  CallInfo info;
  info.request_id = RequestIdFrom(Metadata(context, "x-request-id"));
  context.AddInitialMetadata("x-request-id", info.request_id);
  info.peer = context.peer();
  info.fields = FieldsOf(context);
  if (traces_ != nullptr) {
    Trace trace;
    traces_->Begin(Metadata(context, "traceparent"),
                   Metadata(context, "tracestate"), trace);
    info.trace = std::move(trace.context);
    if (info.trace.valid()) {
      context.AddInitialMetadata("traceparent", Traceparent(info.trace));
    }
  }

  // gRPC speaks of wall time; we carry what is left over to our own clock. A
  // call without deadline has one centuries away.
  const auto left = context.deadline() - std::chrono::system_clock::now();
  if (left < std::chrono::hours(24 * 365)) {
    info.deadline =
        clock_->Now() + std::chrono::duration_cast<Clock::Duration>(left);
  }
  return info;
}

StatusOr<CallerPtr> CallReader::Identify(
    const ::grpc::CallbackServerContext& context, GrpcRoute route) const {
  const bool is_health = route == GrpcRoute::kServerLive ||
                         route == GrpcRoute::kServerReady ||
                         route == GrpcRoute::kTorchServePing;
  if (auth_ == nullptr || is_health) return CallerPtr();
  return auth_->Identify(Metadata(context, "authorization"),
                         Metadata(context, "x-api-key"));
}

StatusOr<CallInfo> CallReader::Admit(::grpc::CallbackServerContext& context,
                                     GrpcRoute route, CallerPtr* caller) {
  ASSIGN_OR_RETURN(*caller, Identify(context, route));
  RETURN_IF_ERROR(Check(caller->get(), route));
  CallInfo info = Read(context);
  info.caller = *caller;
  return info;
}

Status CallReader::Check(const Caller* caller, GrpcRoute route) const {
  const std::optional<Scope> scope = ScopeOf(route);
  if (!scope.has_value()) return OkStatus();
  if (management_apart_ && *scope != Scope::kInfer) {
    return Status(StatusCode::kPermissionDenied,
                  "management is not on this port; use REST at the port of "
                  "management_port")
        .Because("management_apart");
  }
  return caller == nullptr ? OkStatus() : auth_->Check(*caller, *scope);
}

}  // namespace millrace::server
