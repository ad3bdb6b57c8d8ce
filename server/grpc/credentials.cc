// gRPC's C core asks for the certificate before each handshake; the C++ layer
// offers that nowhere, so the credentials stand on the C functions. The C++
// layer's own providers watch files, too, but they drop the old certificate
// when the new files cannot be used.
#include "server/grpc/credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpcpp/security/server_credentials.h>

#include <string>
#include <utility>

#include "config/base/mutex.h"

namespace millrace::server {
namespace {

grpc_ssl_client_certificate_request_type RequestType(ClientCertificates mode) {
  switch (mode) {
    case ClientCertificates::kOptional:
      return GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY;
    case ClientCertificates::kRequired:
      return GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
    default:
      return GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
  }
}

// Hands gRPC a new version of the certificate, once for each.
class Fetcher {
 public:
  explicit Fetcher(Certificates* certificates) : certificates_(certificates) {}

  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    return static_cast<Fetcher*>(self)->Next(config);
  }

 private:
  grpc_ssl_certificate_config_reload_status Next(
      grpc_ssl_server_certificate_config** config) {
    std::shared_ptr<const CertificateVersion> now = certificates_->Current();
    MutexLock lock(mu_);
    if (now == given_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    grpc_ssl_pem_key_cert_pair pair{now->key_pem().c_str(),
                                    now->chain_pem().c_str()};
    // gRPC needs authorities here, also where it asks clients for nothing.
    const std::string& authorities =
        now->client_ca_pem().empty() ? now->chain_pem() : now->client_ca_pem();
    *config = grpc_ssl_server_certificate_config_create(authorities.c_str(),
                                                        &pair, 1);
    given_ = std::move(now);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  Certificates* const certificates_;
  Mutex mu_;
  std::shared_ptr<const CertificateVersion> given_ GUARDED_BY(mu_);
};

class TlsCredentials final : public ::grpc::ServerCredentials {
 public:
  explicit TlsCredentials(Certificates* certificates)
      : fetcher_(certificates),
        credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                RequestType(certificates->client_certificates()),
                &Fetcher::Fetch, &fetcher_))) {}
  ~TlsCredentials() override { grpc_server_credentials_release(credentials_); }

  // Keys are read from the metadata by the service itself.
  void SetAuthMetadataProcessor(
      const std::shared_ptr<::grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address,
                      grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  Fetcher fetcher_;
  grpc_server_credentials* const credentials_;
};

}  // namespace

std::shared_ptr<::grpc::ServerCredentials> MakeCredentials(
    Certificates* certificates) {
  if (certificates == nullptr) return ::grpc::InsecureServerCredentials();
  return std::make_shared<TlsCredentials>(certificates);
}

}  // namespace millrace::server
