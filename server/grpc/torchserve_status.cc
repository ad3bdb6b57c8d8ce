#include "server/grpc/torchserve_status.h"

#include <grpcpp/support/status.h>

#include <string>

#include "server/grpc/grpc_status.h"
#include "server/torchserve/error_form.h"

namespace millrace::server {

::grpc::Status ToTorchServeGrpc(const Status& status) {
  const ::grpc::Status plain = ToGrpc(status);
  if (plain.ok()) return plain;
  const std::string type(torchserve::ErrorFormOf(status).type);
  return ::grpc::Status(plain.error_code(),
                        plain.error_message() + "\n" + type);
}

}  // namespace millrace::server
