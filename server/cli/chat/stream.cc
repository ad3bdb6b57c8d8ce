// Plain sockets, and OpenSSL on top of them.
#include "server/cli/chat/stream.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace millrace::server {
namespace {

class PlainStream final : public Stream {
 public:
  explicit PlainStream(Socket socket) : Stream(std::move(socket)) {}

  ssize_t Handshake() override { return 1; }
  ssize_t Send(std::string_view bytes) override {
    return Result(::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                  POLLOUT);
  }
  ssize_t Receive(std::span<char> into) override {
    return Result(::recv(fd(), into.data(), into.size(), 0), POLLIN);
  }

 private:
  ssize_t Result(ssize_t n, short wanted) {
    if (n >= 0) return n;
    wanted_ = wanted;
    if (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK) return kWait;
    error_ = std::strerror(errno);
    return kBroken;
  }
};

struct FreeContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
struct FreeSsl {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};
using Context = std::unique_ptr<SSL_CTX, FreeContext>;

std::string OpenSslError() {
  const unsigned long code = ERR_peek_error();
  ERR_clear_error();
  const char* reason = ERR_reason_error_string(code);
  return reason != nullptr ? reason : "unknown error";
}

class TlsStream final : public Stream {
 public:
  TlsStream(Socket socket, Context context, SSL* ssl)
      : Stream(std::move(socket)), context_(std::move(context)), ssl_(ssl) {}

  ssize_t Handshake() override {
    ERR_clear_error();
    return Result(SSL_connect(ssl_.get()), 1);
  }
  ssize_t Send(std::string_view bytes) override {
    size_t n = 0;
    ERR_clear_error();
    const int result = SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &n);
    return Result(result, n);
  }
  ssize_t Receive(std::span<char> into) override {
    size_t n = 0;
    ERR_clear_error();
    const int result = SSL_read_ex(ssl_.get(), into.data(), into.size(), &n);
    return Result(result, n);
  }

 private:
  ssize_t Result(int result, size_t n) {
    if (result == 1) return static_cast<ssize_t>(n);
    switch (SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_WANT_READ:
        wanted_ = POLLIN;
        return kWait;
      case SSL_ERROR_WANT_WRITE:
        wanted_ = POLLOUT;
        return kWait;
      case SSL_ERROR_ZERO_RETURN:
        return 0;
      default:
        break;
    }
    const long verified = SSL_get_verify_result(ssl_.get());
    const unsigned long code = ERR_peek_error();
    if (code == 0) {
      error_ = errno != 0 ? std::strerror(errno)
                          : "the server closed the connection";
    } else if (ERR_GET_REASON(code) == SSL_R_CERTIFICATE_VERIFY_FAILED) {
      error_ = std::string("the server's certificate is not trusted (") +
               X509_verify_cert_error_string(verified) +
               "); name its authority with --cacert FILE, or say --insecure";
    } else if (ERR_GET_REASON(code) == SSL_R_WRONG_VERSION_NUMBER) {
      error_ = "the server does not speak TLS; begin the URL with http://";
    } else {
      error_ = OpenSslError();
    }
    ERR_clear_error();
    return kBroken;
  }

  const Context context_;  // outlives ssl_
  const std::unique_ptr<SSL, FreeSsl> ssl_;
};

Status BadFile(const char* flag, const std::string& path) {
  return InvalidArgument("the file '" + path + "' of " + flag +
                         " cannot be used (" + OpenSslError() +
                         "); it must hold PEM")
      .At(flag);
}

StatusOr<Context> MakeContext(const TlsOptions& options) {
  Context context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) return Internal("OpenSSL cannot make a context");
  SSL_CTX* const ctx = context.get();
  SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
  SSL_CTX_set_mode(
      ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  ERR_clear_error();
  const bool pinned = !options.pinned_file.empty();
  const std::string& trusted = pinned ? options.pinned_file : options.ca_file;
  if (trusted.empty()) {
    SSL_CTX_set_default_verify_paths(ctx);
  } else if (SSL_CTX_load_verify_file(ctx, trusted.c_str()) != 1) {
    return BadFile("--cacert", trusted);
  }
  if (pinned) {  // a certificate that is trusted by itself
    X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(ctx),
                                X509_V_FLAG_PARTIAL_CHAIN);
  }
  SSL_CTX_set_verify(ctx, options.insecure ? SSL_VERIFY_NONE : SSL_VERIFY_PEER,
                     nullptr);
  if (options.cert_file.empty()) return context;
  if (SSL_CTX_use_certificate_chain_file(ctx, options.cert_file.c_str()) != 1) {
    return BadFile("--cert", options.cert_file);
  }
  const std::string& key =
      options.key_file.empty() ? options.cert_file : options.key_file;
  if (SSL_CTX_use_PrivateKey_file(ctx, key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return BadFile("--key", key);
  }
  return context;
}

bool IsAddress(const std::string& host) {
  in6_addr ignored;
  return inet_pton(AF_INET, host.c_str(), &ignored) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

StatusOr<std::unique_ptr<Stream>> Stream::Open(Socket socket,
                                               const HttpUrl& url) {
  if (!url.is_tls) {
    return std::unique_ptr<Stream>(
        std::make_unique<PlainStream>(std::move(socket)));
  }
  ASSIGN_OR_RETURN(Context context, MakeContext(url.tls));
  SSL* const ssl = SSL_new(context.get());
  if (ssl == nullptr) return Internal("OpenSSL cannot make a connection");
  SSL_set_fd(ssl, socket.fd());
  auto stream =
      std::make_unique<TlsStream>(std::move(socket), std::move(context), ssl);
  X509_VERIFY_PARAM* const param = SSL_get0_param(ssl);
  if (IsAddress(url.host)) {
    if (url.tls.pinned_file.empty()) {
      X509_VERIFY_PARAM_set1_ip_asc(param, url.host.c_str());
    }
  } else {
    SSL_set_tlsext_host_name(ssl, url.host.c_str());
    if (url.tls.pinned_file.empty()) {
      X509_VERIFY_PARAM_set1_host(param, url.host.data(), url.host.size());
    }
  }
  return std::unique_ptr<Stream>(std::move(stream));
}

}  // namespace millrace::server
