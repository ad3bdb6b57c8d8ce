// What a generation call needs, however it came in: parts of the server, and
// the way from a request message to the model's handler that ModelInfer and
// ModelStreamInfer share.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "config/base/clock.h"
#include "config/base/status.h"
#include "handlers/handler.h"
#include "handlers/pool.h"
#include "server/grpc/call_info.h"
#include "server/grpc/infer_codec.h"
#include "server/grpc/recorder.h"
#include "server/lifecycle/repository.h"
#include "server/protocol_state.h"

namespace millrace::server {

// All outlive every call.
struct InferParts {
  Repository* repository = nullptr;
  handlers::Pool* pool = nullptr;
  Recorder* recorder = nullptr;
  const Clock* clock = nullptr;
  ProtocolState* state = nullptr;
};

// The earlier of the call's deadline and the request's own timeout.
Clock::Time DeadlineOf(const CallInfo& info,
                       std::optional<std::chrono::microseconds> timeout,
                       const Clock& clock);

// The request that the handler gets.
handlers::GenerateRequest MakeRequest(InferCall& call, const CallInfo& info,
                                      std::shared_ptr<Trace> trace,
                                      const Clock& clock);

// A call that the client left: CANCELLED, or DEADLINE_EXCEEDED when its
// deadline has passed (gRPC reports both as a cancellation).
Status WhyCancelled(const CallInfo& info, const Clock& clock);

// What TryPost's refusal means.
Status PoolIsFull();

}  // namespace millrace::server
