// What all calls of inference need: parts of the server, and
// the way from a request message to the model's handler that ModelInfer and
// ModelStreamInfer share.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "config/base/clock.h"
#include "config/base/status.h"
#include "handlers/handler.h"
#include "handlers/pool.h"
#include "server/audit.h"
#include "server/grpc/call_info.h"
#include "server/grpc/recorder.h"
#include "server/grpc/text_codec.h"
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
  AuditLog* audit = nullptr;  // null: nothing is written
  Auth* auth = nullptr;       // null: callers need no key
};

// A model by its name; PERMISSION_DENIED where the caller's tenant may not use
// it.
StatusOr<ModelHandle> BorrowFor(const CallInfo& info, Repository& repository,
                                const std::string& name,
                                const std::string& version);

// A place among the requests of the caller's tenant, kept by `info`; the
// refusal where there is none.
Status TakePermit(CallInfo& info);

// The request's own priority, but none that goes before its tenant's.
int32_t PriorityOf(const CallInfo& info, int32_t asked);

// The request that the handler gets.
handlers::GenerateRequest MakeRequest(InferCall& call, const CallInfo& info,
                                      std::shared_ptr<Trace> trace,
                                      const Clock& clock);

// A call that the client left: CANCELLED, or DEADLINE_EXCEEDED when its
// deadline has passed (gRPC reports both as a cancellation).
Status WhyCancelled(const CallInfo& info, const Clock& clock);

// The work's status; INTERNAL for what throws (out of memory, most likely).
Status NoThrow(const std::function<Status()>& work);

// What TryPost's refusal means.
Status PoolIsFull();

}  // namespace millrace::server
