// Our Status as gRPC says it: the same sixteen codes; the field at fault is
// named in the message when the sentence does not name it already.
#pragma once

#include <string>

#include "config/base/status.h"

namespace grpc {
class Status;
}

namespace millrace::server {

::grpc::Status ToGrpc(const Status& status);
// As TorchServe's services say it: the name of an exception in a second line.
::grpc::Status ToTorchServeGrpc(const Status& status);
// The sentence alone, field included: what ModelStreamInfer sends in
// error_message.
std::string MessageOf(const Status& status);

}  // namespace millrace::server
