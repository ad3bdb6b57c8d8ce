// Credentials of the gRPC port: none, or TLS with the server's certificate.
#pragma once

#include <memory>

#include "server/tls.h"

namespace grpc {
class ServerCredentials;
}

namespace millrace::server {

// `certificates` outlives the gRPC server; null: no TLS. Each new connection
// gets the certificate that is in force then.
std::shared_ptr<::grpc::ServerCredentials> MakeCredentials(
    Certificates* certificates);

}  // namespace millrace::server
