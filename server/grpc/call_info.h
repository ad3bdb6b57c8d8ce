// What the metadata of a call says before its message is looked at: who asks,
// under which request id, and until when.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/base/clock.h"
#include "config/base/status.h"
#include "config/base/trace_context.h"
#include "server/auth.h"
#include "server/grpc/recorder.h"
#include "server/tracing/request_traces.h"

namespace grpc {
class CallbackServerContext;
}

namespace millrace::server {

struct CallInfo {
  std::string request_id;  // x-request-id, or one of our own
  Clock::Time deadline = kNever;
  std::string peer;
  TraceContext trace;                    // of the call, when it is in one
  CallerPtr caller;                      // null: nobody was asked
  std::shared_ptr<const Permit> permit;  // of ModelInfer; shared by its copies
  // Metadata that begin with "x-", but for ids and keys: what a model's traffic
  // may look at. At most kMaxFields of them.
  static constexpr size_t kMaxFields = 16;
  std::vector<std::pair<std::string, std::string>> fields;
};

// Thread-safe.
class CallReader {
 public:
  // All outlive the reader; auth may be null: nobody is refused; so may traces.
  // Management that has a port of its own is refused here.
  CallReader(Auth* auth, const RequestTraces* traces, const Clock* clock,
             bool management_apart);

  // Reads the metadata and sends x-request-id with the initial metadata of the
  // answer; so it is called once, before anything is written.
  CallInfo Read(::grpc::CallbackServerContext& context);
  // Who calls, by `authorization: Bearer KEY` or `x-api-key: KEY`. Null where
  // no key is needed: the server's health alone, as over REST.
  StatusOr<CallerPtr> Identify(const ::grpc::CallbackServerContext& context,
                               GrpcRoute route) const;
  // An error where the key is not good for the method; caller may be null.
  Status Check(const Caller* caller, GrpcRoute route) const;
  // All three: who calls and what the metadata says, or why the call is
  // refused. `caller` is set where it is known, also then.
  StatusOr<CallInfo> Admit(::grpc::CallbackServerContext& context,
                           GrpcRoute route, CallerPtr* caller);

 private:
  Auth* const auth_;
  const RequestTraces* const traces_;
  const Clock* const clock_;
  const bool management_apart_;
};

}  // namespace millrace::server
