// The server's certificate and private key, and the authorities that sign its
// clients' certificates, from PEM files.
//
//   ASSIGN_OR_RETURN(auto certificates, Certificates::Load(settings));
//   ... certificates->Current()->context() ...   // for each new connection
//
// Files that changed are read again without a restart: new connections get the
// new certificate, open ones keep theirs. While the new files cannot be used (a
// key that does not fit, no PEM) the old certificate stays, and the log says
// why.
//
// TLS 1.2 and 1.3, forward secrecy only, ALPN "http/1.1" in context(). HTTP/2
// is not needed on REST: no client of these protocols asks for it, and gRPC
// brings its own. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/base/clock.h"
#include "config/base/mutex.h"
#include "config/base/status.h"
#include "config/schema.h"
#include "server/watched_file.h"

struct ssl_ctx_st;

namespace millrace::server {

enum class ClientCertificates { kNone, kOptional, kRequired };

// One state of the files. Immutable; shared by the connections made with it.
class CertificateVersion {
 public:
  static StatusOr<std::shared_ptr<const CertificateVersion>> Read(
      const config::ServerSettings& settings);
  ~CertificateVersion();
  CertificateVersion(const CertificateVersion&) = delete;
  CertificateVersion& operator=(const CertificateVersion&) = delete;

  // OpenSSL's SSL_CTX for servers of HTTP/1.1.
  ssl_ctx_st* context() const { return context_; }
  // The files' bytes, for gRPC.
  const std::string& chain_pem() const { return chain_pem_; }
  const std::string& key_pem() const { return key_pem_; }
  const std::string& client_ca_pem() const { return client_ca_pem_; }
  int64_t expires_unix() const { return expires_unix_; }

 private:
  CertificateVersion() = default;

  std::string chain_pem_, key_pem_, client_ca_pem_;
  ssl_ctx_st* context_ = nullptr;
  int64_t expires_unix_ = 0;
};

class Certificates {
 public:
  // How often the files are looked at, at most.
  static constexpr std::chrono::milliseconds kLookInterval{1000};

  // Null where settings name no certificate. FAILED_PRECONDITION names the file
  // and what is wrong with it.
  static StatusOr<std::unique_ptr<Certificates>> Load(
      const config::ServerSettings& settings,
      const Clock* clock = &Clock::Real());

  std::shared_ptr<const CertificateVersion> Current();
  ClientCertificates client_certificates() const;

 private:
  Certificates(const config::ServerSettings& settings, const Clock* clock)
      : settings_(settings), clock_(clock) {}
  std::vector<FileStamp> Stamps() const;

  const config::ServerSettings settings_;
  const Clock* const clock_;
  Mutex mu_;
  std::shared_ptr<const CertificateVersion> current_ GUARDED_BY(mu_);
  std::vector<FileStamp> stamps_ GUARDED_BY(mu_);
  Clock::Time next_look_ GUARDED_BY(mu_);
};

}  // namespace millrace::server
