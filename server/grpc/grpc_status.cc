// Codes have gRPC's numbers, so the code is a cast. gRPC percent-encodes the
// message itself, so any bytes may stand in it.
#include "server/grpc/grpc_status.h"

#include <grpcpp/support/status.h>

#include "server/torchserve/error_form.h"

namespace millrace::server {

std::string MessageOf(const Status& status) {
  std::string message(status.message());
  const std::string_view field = status.field();
  if (!field.empty() && message.find(field) == std::string::npos) {
    message.append(" (field '").append(field).append("')");
  }
  return message;
}

::grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return ::grpc::Status::OK;
  return ::grpc::Status(static_cast<::grpc::StatusCode>(status.code()),
                        MessageOf(status));
}

::grpc::Status ToTorchServeGrpc(const Status& status) {
  const ::grpc::Status plain = ToGrpc(status);
  if (plain.ok()) return plain;
  const std::string type(torchserve::ErrorFormOf(status).type);
  return ::grpc::Status(plain.error_code(),
                        plain.error_message() + "\n" + type);
}

}  // namespace millrace::server
