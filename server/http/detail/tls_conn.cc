// TLS by OpenSSL on a non-blocking socket; Asio waits until it is ready.
//
// Asio's ssl::stream is not used: its write_some loses bytes when the socket of
// the layer below is full, and the session needs a write that does not wait.
// OpenSSL reads and writes the socket itself, so nothing is copied twice.
//
// A write that OpenSSL took in part is repeated with the same bytes, as its API
// demands: the session keeps what was not taken and offers it again first.
#include "server/http/detail/tls_conn.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "config/base/log.h"

namespace millrace::server::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// What a client that does not speak TLS is told, in clear.
constexpr std::string_view kSpeakTls =
    "{\"error\":{\"message\":\"this port speaks TLS; begin the URL with "
    "https://\",\"type\":\"invalid_request_error\",\"param\":null,"
    "\"code\":null}}";
constexpr size_t kDroppedBytes = 64 << 10;

class TlsConn final : public Conn {
 public:
  TlsConn(tcp::socket socket,
          std::shared_ptr<const CertificateVersion> certificate, SSL* ssl,
          std::chrono::milliseconds handshake_timeout)
      : certificate_(std::move(certificate)),
        socket_(std::move(socket)),
        ssl_(ssl),
        timer_(socket_.get_executor()) {
    error_code ec;
    socket_.set_option(tcp::no_delay(true), ec);
    socket_.non_blocking(true, ec);
    socket_.native_non_blocking(true, ec);
    const auto peer = socket_.remote_endpoint(ec);
    if (!ec) {
      peer_ = peer.address().to_string() + ":" + std::to_string(peer.port());
    }
    SSL_set_accept_state(ssl_);
    timer_.expires_after(handshake_timeout);
    timer_.async_wait([this, alive = std::weak_ptr<int>(alive_)](
                          const error_code& cancelled) {
      if (cancelled || alive.expired() || SSL_is_init_finished(ssl_)) return;
      LogDebug("TLS handshake took too long", {{"peer", peer_}});
      Close();
    });
  }

  ~TlsConn() override { SSL_free(ssl_); }

  void Read(std::span<char> into,
            std::function<void(ptrdiff_t)> done) override {
    size_t n = 0;
    const Next next = Get(into, &n);
    if (next != Next::kWaitRead && next != Next::kWaitWrite) {
      const ptrdiff_t count = next == Next::kDone  ? static_cast<ptrdiff_t>(n)
                              : next == Next::kEnd ? 0
                                                   : -1;
      asio::post(socket_.get_executor(),
                 [done = std::move(done), count] { done(count); });
      return;
    }
    socket_.async_wait(
        next == Next::kWaitRead ? tcp::socket::wait_read
                                : tcp::socket::wait_write,
        [this, into, done = std::move(done)](const error_code& ec) mutable {
          if (ec) return done(-1);
          Read(into, std::move(done));
        });
  }

  ptrdiff_t TryWrite(std::string_view bytes) override {
    size_t n = 0;
    Next ignored = Next::kDone;
    return Put(bytes, &n, &ignored);
  }

  void Write(std::string_view bytes,
             std::function<void(ptrdiff_t)> done) override {
    size_t n = 0;
    Next next = Next::kDone;
    const ptrdiff_t put = Put(bytes, &n, &next);
    if (put != 0) {
      asio::post(socket_.get_executor(),
                 [done = std::move(done), put] { done(put); });
      return;
    }
    socket_.async_wait(
        next == Next::kWaitRead ? tcp::socket::wait_read
                                : tcp::socket::wait_write,
        [this, bytes, done = std::move(done)](const error_code& ec) mutable {
          if (ec) return done(-1);
          Write(bytes, std::move(done));
        });
  }

  void ShutdownSend() override {
    SayGoodbye();
    error_code ec;
    socket_.shutdown(tcp::socket::shutdown_send, ec);
  }

  void Close() override {
    if (!socket_.is_open()) return;
    SayGoodbye();
    timer_.cancel();
    error_code ec;
    socket_.close(ec);
  }

  const std::string& peer() const override { return peer_; }

 private:
  enum class Next { kDone, kWaitRead, kWaitWrite, kEnd, kBroken };

  // What follows from the result of a call of OpenSSL.
  Next After(int result) {
    if (result == 1) return Next::kDone;
    switch (SSL_get_error(ssl_, result)) {
      case SSL_ERROR_WANT_READ:
        return Next::kWaitRead;
      case SSL_ERROR_WANT_WRITE:
        return Next::kWaitWrite;
      case SSL_ERROR_ZERO_RETURN:
        return Next::kEnd;
      default:
        break;
    }
    const unsigned long code = ERR_peek_error();
    // A peer that closes without close_notify: the length of an HTTP message
    // tells whether anything is missing.
    const bool cut =
        code == 0 || ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
    failed_ = true;
    if (!cut && !SSL_is_init_finished(ssl_)) {
      if (ERR_GET_REASON(code) == SSL_R_HTTP_REQUEST) AnswerInClear();
      const char* reason = ERR_reason_error_string(code);
      LogInfo("TLS handshake failed",
              {{"peer", peer_},
               {"error", reason != nullptr ? reason : "unknown error"}});
    }
    ERR_clear_error();
    return Next::kBroken;
  }

  // A closed socket's number may be another connection's already: OpenSSL must
  // not be called then.
  Next Get(std::span<char> into, size_t* n) {
    if (!socket_.is_open()) return Next::kBroken;
    ERR_clear_error();
    return After(SSL_read_ex(ssl_, into.data(), into.size(), n));
  }

  // Bytes taken, 0 when the socket is full, < 0: broken.
  ptrdiff_t Put(std::string_view bytes, size_t* n, Next* next) {
    if (!socket_.is_open()) return -1;
    ERR_clear_error();
    *next = After(SSL_write_ex(ssl_, bytes.data(), bytes.size(), n));
    if (*next == Next::kDone) return static_cast<ptrdiff_t>(*n);
    return *next == Next::kBroken || *next == Next::kEnd ? -1 : 0;
  }

  // close_notify, as far as the socket takes it without waiting.
  void SayGoodbye() {
    if (failed_ || !socket_.is_open() || !SSL_is_init_finished(ssl_)) return;
    failed_ = true;  // said once
    ERR_clear_error();
    SSL_shutdown(ssl_);
    ERR_clear_error();
  }

  // What the client sent is read first: unread bytes would make the kernel
  // reset the connection, and the client would not see the answer.
  void AnswerInClear() {
    char dropped[4096];
    size_t left = kDroppedBytes;
    error_code ec;
    while (left > 0 && !ec) {
      left -= std::min(left, socket_.read_some(asio::buffer(dropped), ec));
    }
    std::string answer =
        "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n"
        "Connection: close\r\nContent-Length: ";
    answer.append(std::to_string(kSpeakTls.size()))
        .append("\r\n\r\n")
        .append(kSpeakTls);
    socket_.write_some(asio::buffer(answer), ec);
  }

  const std::shared_ptr<const CertificateVersion> certificate_;
  tcp::socket socket_;
  SSL* const ssl_;
  asio::steady_timer timer_;  // of the handshake
  // The timer's completion may come after this is gone.
  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  std::string peer_;
  bool failed_ = false;  // nothing may be sent any more
};

}  // namespace

std::unique_ptr<Conn> MakeTlsConn(
    tcp::socket socket, std::shared_ptr<const CertificateVersion> certificate,
    std::chrono::milliseconds handshake_timeout) {
  SSL* ssl = SSL_new(certificate->context());
  if (ssl == nullptr) return nullptr;
  if (SSL_set_fd(ssl, static_cast<int>(socket.native_handle())) != 1) {
    SSL_free(ssl);
    return nullptr;
  }
  return std::make_unique<TlsConn>(std::move(socket), std::move(certificate),
                                   ssl, handshake_timeout);
}

}  // namespace millrace::server::http
