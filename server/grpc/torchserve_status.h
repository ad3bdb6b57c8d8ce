// A status as TorchServe's gRPC services say it: the sentence, and in a second
// line the name of an exception. Pure function.
#pragma once

#include "config/base/status.h"

namespace grpc {
class Status;
}

namespace millrace::server {

::grpc::Status ToTorchServeGrpc(const Status& status);

}  // namespace millrace::server
