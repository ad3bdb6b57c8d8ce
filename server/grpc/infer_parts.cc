// The common way of generation calls. The earlier of the call's deadline and
// the request's own timeout counts.
#include "server/grpc/infer_parts.h"

#include <algorithm>
#include <utility>

namespace millrace::server {

handlers::GenerateRequest MakeRequest(InferCall& call, const CallInfo& info,
                                      std::shared_ptr<Trace> trace,
                                      const Clock& clock) {
  handlers::GenerateRequest request;
  request.prompt = std::move(call.prompt);
  request.options = std::move(call.options);
  request.deadline = info.deadline;
  if (call.timeout) {
    // A timeout beyond a year is none: the sum must not overflow.
    constexpr auto kYear = std::chrono::hours(24 * 365);
    if (*call.timeout < kYear) {
      request.deadline =
          std::min(request.deadline, clock.Now() + *call.timeout);
    }
  }
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
