// The common way of inference calls.
#include "server/grpc/infer_parts.h"

#include <algorithm>
#include <utility>

namespace millrace::server {

Clock::Time DeadlineOf(const CallInfo& info,
                       std::optional<std::chrono::microseconds> timeout,
                       const Clock& clock) {
  // A timeout beyond a year is none: the sum must not overflow.
  constexpr auto kYear = std::chrono::hours(24 * 365);
  if (!timeout || *timeout >= kYear) return info.deadline;
  return std::min(info.deadline, clock.Now() + *timeout);
}

handlers::GenerateRequest MakeRequest(InferCall& call, const CallInfo& info,
                                      std::shared_ptr<Trace> trace,
                                      const Clock& clock) {
  handlers::GenerateRequest request;
  request.prompt = std::move(call.prompt);
  request.options = std::move(call.options);
  request.deadline = DeadlineOf(info, call.timeout, clock);
  request.trace = std::move(trace);
  return request;
}

Status WhyCancelled(const CallInfo& info, const Clock& clock) {
  if (clock.Now() >= info.deadline) {
    return DeadlineExceeded("the call's deadline has passed");
  }
  return Cancelled("the client cancelled the call");
}

Status PoolIsFull() {
  return ResourceExhausted(
             "the server has more requests waiting than it may queue; try "
             "again later")
      .RetryAfterMs(1000);
}

}  // namespace millrace::server
