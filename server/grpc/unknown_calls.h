// Calls of methods that this server does not have: UNIMPLEMENTED, with a
// sentence that names the method and what to use instead.
#pragma once

#include <memory>

#include "server/grpc/call_info.h"
#include "server/grpc/recorder.h"

namespace grpc {
class CallbackGenericService;
}

namespace millrace::server {

// Both outlive the service.
std::unique_ptr<::grpc::CallbackGenericService> MakeUnknownCalls(
    const CallReader* reader, const Recorder* recorder);

}  // namespace millrace::server
