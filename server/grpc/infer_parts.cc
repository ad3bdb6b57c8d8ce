// The common way of inference calls.
#include "server/grpc/infer_parts.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "config/base/deadline.h"
#include "config/base/log.h"
#include "config/base/out_of_memory.h"

namespace millrace::server {
namespace {

class MetadataFields final : public RequestFields {
 public:
  explicit MetadataFields(const CallInfo& info) : info_(info) {}
  std::string_view Header(std::string_view name) const override {
    for (const auto& [key, value] : info_.fields) {
      if (key == name) return value;
    }
    return {};
  }

 private:
  const CallInfo& info_;
};

}  // namespace

StatusOr<ModelHandle> BorrowFor(const CallInfo& info, Repository& repository,
                                const std::string& name,
                                const std::string& version) {
  if (info.caller != nullptr) {
    RETURN_IF_ERROR(info.caller->tenant->MayUse(name));
  }
  const MetadataFields fields(info);
  return repository.Borrow(name, version, &fields);
}

Status TakePermit(CallInfo& info) {
  if (info.caller == nullptr) return OkStatus();
  ASSIGN_OR_RETURN(Permit permit, info.caller->tenant->Admit());
  info.permit = std::make_shared<const Permit>(std::move(permit));
  return OkStatus();
}

int32_t PriorityOf(const CallInfo& info, int32_t asked) {
  return info.caller == nullptr ? asked
                                : info.caller->tenant->PriorityOf(asked);
}

handlers::GenerateRequest MakeRequest(InferCall& call, const CallInfo& info,
                                      std::shared_ptr<Trace> trace,
                                      const Clock& clock) {
  handlers::GenerateRequest request;
  request.prompt = std::move(call.prompt);
  request.options = std::move(call.options);
  request.options.priority = PriorityOf(info, request.options.priority);
  if (info.caller != nullptr) {
    const Tenant& tenant = *info.caller->tenant;
    request.tenant = {tenant.number(), tenant.limits().weight, tenant.alone()};
  }
  request.deadline = EarlierDeadline(info.deadline, call.timeout, clock);
  request.trace = std::move(trace);
  return request;
}

Status WhyCancelled(const CallInfo& info, const Clock& clock) {
  if (clock.Now() >= info.deadline) {
    return DeadlineExceeded("the call's deadline has passed");
  }
  return Cancelled("the client cancelled the call");
}

Status NoThrow(const std::function<Status()>& work) {
  try {
    return CatchOutOfMemory(work);
  } catch (const std::exception& error) {
    LogError("request failed", {{"error", error.what()}});
    return Internal("the request failed; see the server's log");
  }
}

Status PoolIsFull() {
  return ResourceExhausted(
             "the server has more requests waiting than it may queue; try "
             "again later")
      .RetryAfterMs(1000);
}

}  // namespace millrace::server
