// Plain TCP. On closing, the kernel answers unread bytes with a reset, which
// may overtake our last answer, so the session drains what it can before it
// closes.
#include "server/http/detail/tcp_conn.h"

#include <utility>

namespace millrace::server::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

class TcpConn final : public Conn {
 public:
  explicit TcpConn(asio::ip::tcp::socket socket) : socket_(std::move(socket)) {
    error_code ec;
    socket_.set_option(asio::ip::tcp::no_delay(true), ec);
    socket_.non_blocking(true, ec);
    const auto peer = socket_.remote_endpoint(ec);
    if (!ec) {
      peer_ = peer.address().to_string() + ":" + std::to_string(peer.port());
    }
  }

  void Read(std::span<char> into,
            std::function<void(ptrdiff_t)> done) override {
    socket_.async_read_some(
        asio::mutable_buffer(into.data(), into.size()),
        [done = std::move(done)](const error_code& ec, size_t n) {
          if (ec == asio::error::eof) return done(0);
          done(ec ? -1 : static_cast<ptrdiff_t>(n));
        });
  }

  ptrdiff_t TryWrite(std::string_view bytes) override {
    error_code ec;
    const size_t n =
        socket_.write_some(asio::const_buffer(bytes.data(), bytes.size()), ec);
    if (ec == asio::error::would_block || ec == asio::error::try_again) {
      return 0;
    }
    return ec ? -1 : static_cast<ptrdiff_t>(n);
  }

  void Write(std::string_view bytes,
             std::function<void(ptrdiff_t)> done) override {
    socket_.async_write_some(
        asio::const_buffer(bytes.data(), bytes.size()),
        [done = std::move(done)](const error_code& ec, size_t n) {
          done(ec ? -1 : static_cast<ptrdiff_t>(n));
        });
  }

  void ShutdownSend() override {
    error_code ec;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ec);
  }

  void Close() override {
    error_code ec;
    socket_.close(ec);
  }

  const std::string& peer() const override { return peer_; }

 private:
  asio::ip::tcp::socket socket_;
  std::string peer_;
};

}  // namespace

std::unique_ptr<Conn> MakeTcpConn(asio::ip::tcp::socket socket) {
  return std::make_unique<TcpConn>(std::move(socket));
}

}  // namespace millrace::server::http
