// Certificates by OpenSSL. A chain, its key and the authorities are read and
// checked together before they replace the version in force.
#include "server/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cstring>
#include <ctime>
#include <utility>

#include "config/base/log.h"
#include "config/base/read_file.h"

namespace millrace::server {
namespace {

constexpr size_t kMaxPemBytes = 4 << 20;  // bundles of authorities are long
// Of TLS 1.2; those of TLS 1.3 are all good.
constexpr char kCiphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";
constexpr unsigned char kHttp11[] = "\x08http/1.1";
constexpr unsigned char kSessionContext[] = "millrace";

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* thing) const {
    Free(thing);
  }
};
using Bio = std::unique_ptr<BIO, Freer<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;

// The oldest error of this thread's queue, which is emptied.
std::string OpenSslError() {
  const unsigned long code = ERR_peek_error();
  ERR_clear_error();
  const char* reason = ERR_reason_error_string(code);
  return reason != nullptr ? reason : "unknown error";
}

Status Bad(const char* setting, const std::string& path, std::string_view why) {
  return FailedPrecondition(std::string(setting) + " is '" + path + "', " +
                            std::string(why))
      .At(setting);
}

// After the last certificate of a file: whether there was only no further one.
// A certificate that cannot be read is another error. Empties the queue.
bool AtEndOfPem() {
  const unsigned long code = ERR_peek_last_error();
  if (ERR_GET_LIB(code) != ERR_LIB_PEM ||
      ERR_GET_REASON(code) != PEM_R_NO_START_LINE) {
    return false;
  }
  ERR_clear_error();
  return true;
}

Bio BioOf(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// A passphrase is never asked for on a terminal.
int NoPassphrase(char*, int, int, void*) { return 0; }

// The server's certificate first, then those that signed it.
Status UseChain(const std::string& path, const std::string& pem, SSL_CTX* ctx,
                int64_t* expires_unix) {
  const Bio bio = BioOf(pem);
  const Certificate leaf(
      PEM_read_bio_X509_AUX(bio.get(), nullptr, NoPassphrase, nullptr));
  if (leaf == nullptr || SSL_CTX_use_certificate(ctx, leaf.get()) != 1) {
    return Bad("ssl_cert_file", path,
               "which holds no usable certificate in PEM (" + OpenSslError() +
                   "); it begins with -----BEGIN CERTIFICATE-----");
  }
  while (Certificate next{
      PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr)}) {
    if (SSL_CTX_add1_chain_cert(ctx, next.get()) != 1) {
      return Bad("ssl_cert_file", path,
                 "whose chain cannot be used (" + OpenSslError() + ")");
    }
  }
  if (!AtEndOfPem()) {
    return Bad("ssl_cert_file", path,
               "whose chain has a certificate that cannot be read (" +
                   OpenSslError() + ")");
  }
  std::tm expires{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(leaf.get()), &expires) == 1) {
    *expires_unix = timegm(&expires);
  }
  return OkStatus();
}

Status UseKey(const config::ServerSettings& settings, const std::string& pem,
              SSL_CTX* ctx) {
  const Bio bio = BioOf(pem);
  const PrivateKey key(
      PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  if (key == nullptr) {
    return Bad("ssl_key_file", settings.ssl_key_file,
               "which holds no private key in PEM that can be read without a "
               "passphrase (" +
                   OpenSslError() + ")");
  }
  if (SSL_CTX_use_PrivateKey(ctx, key.get()) != 1 ||
      SSL_CTX_check_private_key(ctx) != 1) {
    return Bad("ssl_key_file", settings.ssl_key_file,
               "which is not the key of the certificate in '" +
                   settings.ssl_cert_file + "' (" + OpenSslError() + ")");
  }
  return OkStatus();
}

Status UseAuthorities(const std::string& path, const std::string& pem,
                      SSL_CTX* ctx) {
  const Bio bio = BioOf(pem);
  X509_STORE* store = SSL_CTX_get_cert_store(ctx);
  int num = 0;
  while (Certificate next{
      PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr)}) {
    if (X509_STORE_add_cert(store, next.get()) != 1 ||
        SSL_CTX_add_client_CA(ctx, next.get()) != 1) {
      return Bad("ssl_ca_file", path,
                 "whose certificates cannot be used (" + OpenSslError() + ")");
    }
    ++num;
  }
  if (!AtEndOfPem()) {
    return Bad(
        "ssl_ca_file", path,
        "which has a certificate that cannot be read (" + OpenSslError() + ")");
  }
  if (num > 0) return OkStatus();
  return Bad("ssl_ca_file", path, "which holds no certificate in PEM");
}

// Takes HTTP/1.1. A client that offers other protocols only is refused (RFC
// 7301, section 3.2).
int SelectProtocol(SSL*, const unsigned char** out, unsigned char* out_size,
                   const unsigned char* offered, unsigned offered_size, void*) {
  unsigned char* chosen = nullptr;
  const int found = SSL_select_next_proto(
      &chosen, out_size, kHttp11, sizeof kHttp11 - 1, offered, offered_size);
  *out = chosen;
  return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK
                                         : SSL_TLSEXT_ERR_ALERT_FATAL;
}

void SetUpProtocol(SSL_CTX* ctx) {
  SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
  SSL_CTX_set_cipher_list(ctx, kCiphers);
  SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                               SSL_OP_CIPHER_SERVER_PREFERENCE);
  // Partial writes fit the session, which keeps what was not taken; buffers of
  // idle connections are given back.
  SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE |
                            SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_id_context(ctx, kSessionContext,
                                 sizeof kSessionContext - 1);
  SSL_CTX_set_alpn_select_cb(ctx, SelectProtocol, nullptr);
}

ClientCertificates Wanted(const config::ServerSettings& settings) {
  const std::string& reqs = settings.ssl_cert_reqs;
  if (settings.ssl_ca_file.empty() || reqs == "none" || reqs == "0") {
    return ClientCertificates::kNone;
  }
  return reqs == "optional" || reqs == "1" ? ClientCertificates::kOptional
                                           : ClientCertificates::kRequired;
}

}  // namespace

CertificateVersion::~CertificateVersion() { SSL_CTX_free(context_); }

StatusOr<std::shared_ptr<const CertificateVersion>> CertificateVersion::Read(
    const config::ServerSettings& settings) {
  std::shared_ptr<CertificateVersion> version(new CertificateVersion());
  ASSIGN_OR_RETURN(
      version->chain_pem_,
      ReadFileOf("ssl_cert_file", settings.ssl_cert_file, kMaxPemBytes));
  ASSIGN_OR_RETURN(
      version->key_pem_,
      ReadFileOf("ssl_key_file", settings.ssl_key_file, kMaxPemBytes));
  ERR_clear_error();
  version->context_ = SSL_CTX_new(TLS_server_method());
  if (version->context_ == nullptr) {
    return Internal("OpenSSL cannot make a context: " + OpenSslError());
  }
  SSL_CTX* const ctx = version->context_;
  SetUpProtocol(ctx);
  RETURN_IF_ERROR(UseChain(settings.ssl_cert_file, version->chain_pem_, ctx,
                           &version->expires_unix_));
  RETURN_IF_ERROR(UseKey(settings, version->key_pem_, ctx));
  const ClientCertificates wanted = Wanted(settings);
  if (wanted != ClientCertificates::kNone) {
    ASSIGN_OR_RETURN(
        version->client_ca_pem_,
        ReadFileOf("ssl_ca_file", settings.ssl_ca_file, kMaxPemBytes));
    RETURN_IF_ERROR(
        UseAuthorities(settings.ssl_ca_file, version->client_ca_pem_, ctx));
    const int must = wanted == ClientCertificates::kRequired
                         ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT
                         : 0;
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | must, nullptr);
  }
  return std::shared_ptr<const CertificateVersion>(std::move(version));
}

StatusOr<std::unique_ptr<Certificates>> Certificates::Load(
    const config::ServerSettings& settings, const Clock* clock) {
  if (settings.ssl_cert_file.empty() && settings.ssl_key_file.empty()) {
    if (!settings.ssl_ca_file.empty()) {
      return FailedPrecondition("ssl_ca_file is '" + settings.ssl_ca_file +
                                "' but there is no TLS without ssl_cert_file "
                                "and ssl_key_file; set both")
          .At("ssl_ca_file");
    }
    return std::unique_ptr<Certificates>();
  }
  if (settings.ssl_cert_file.empty() || settings.ssl_key_file.empty()) {
    return FailedPrecondition(
               "TLS needs both ssl_cert_file and ssl_key_file; only one of "
               "them is set")
        .At(settings.ssl_cert_file.empty() ? "ssl_cert_file" : "ssl_key_file");
  }
  std::unique_ptr<Certificates> all(new Certificates(settings, clock));
  MutexLock lock(all->mu_);
  all->stamps_ = all->Stamps();
  ASSIGN_OR_RETURN(all->current_, CertificateVersion::Read(settings));
  all->next_look_ = clock->Now() + kLookInterval;
  return all;
}

ClientCertificates Certificates::client_certificates() const {
  return Wanted(settings_);
}

std::vector<FileStamp> Certificates::Stamps() const {
  return {FileStamp::Of(settings_.ssl_cert_file),
          FileStamp::Of(settings_.ssl_key_file),
          FileStamp::Of(settings_.ssl_ca_file)};
}

std::shared_ptr<const CertificateVersion> Certificates::Current() {
  MutexLock lock(mu_);
  const Clock::Time now = clock_->Now();
  if (now < next_look_) return current_;
  next_look_ = now + kLookInterval;
  std::vector<FileStamp> stamps = Stamps();
  if (stamps == stamps_) return current_;
  stamps_ = std::move(stamps);
  StatusOr<std::shared_ptr<const CertificateVersion>> fresh =
      CertificateVersion::Read(settings_);
  if (!fresh.ok()) {
    LogWarning("certificate kept", {{"why", "the changed files cannot be used"},
                                    {"error", fresh.status().message()}});
    return current_;
  }
  current_ = *std::move(fresh);
  LogInfo("certificate reloaded", {{"file", settings_.ssl_cert_file},
                                   {"expires_unix", current_->expires_unix()}});
  return current_;
}

}  // namespace millrace::server
