#include "loadtest/detail/transport.h"

#include <openssl/ssl.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <tuple>

namespace millrace::loadtest {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

}  // namespace

asio::awaitable<error_code> Transport::Connect(
    const asio::ip::tcp::endpoint& address) {
  error_code ignored;
  tls_.reset();
  socket_.close(ignored);
  const auto [ec] = co_await socket_.async_connect(address, kAwait);
  if (ec) co_return ec;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  if (endpoints_.tls == nullptr) co_return ec;
  tls_.emplace(socket_, *endpoints_.tls);
  SSL_set_tlsext_host_name(tls_->native_handle(), endpoints_.host.c_str());
  if (endpoints_.check_name) {
    tls_->set_verify_callback(
        asio::ssl::host_name_verification(endpoints_.host), ignored);
  }
  const auto [shaken] =
      co_await tls_->async_handshake(asio::ssl::stream_base::client, kAwait);
  co_return shaken;
}

asio::awaitable<void> Transport::WriteAll(std::string_view bytes) {
  const auto buffer = asio::buffer(bytes.data(), bytes.size());
  if (tls_.has_value()) {
    std::ignore = co_await asio::async_write(*tls_, buffer, kAwait);
  } else {
    std::ignore = co_await asio::async_write(socket_, buffer, kAwait);
  }
}

asio::awaitable<size_t> Transport::ReadSome(asio::mutable_buffer into,
                                            error_code& ec) {
  if (!tls_.has_value()) {
    const auto [failed, size] = co_await socket_.async_read_some(into, kAwait);
    ec = failed;
    co_return size;
  }
  const auto [failed, size] = co_await tls_->async_read_some(into, kAwait);
  ec = failed;
  // HTTP itself says whether a reply is complete.
  if (ec == asio::ssl::error::stream_truncated) ec = asio::error::eof;
  co_return size;
}

void Transport::Close() {
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace millrace::loadtest
