// TCP, or TLS over it, to one server. A new connection begins with Connect.
// One thread only, that of the io_context.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::loadtest {

// Where to connect to, and how.
struct Endpoints {
  std::vector<boost::asio::ip::tcp::endpoint> addresses;
  // Of https; shared by all connections. Null: none.
  std::shared_ptr<boost::asio::ssl::context> tls;
  std::string host;  // whose name the certificate must bear
  bool check_name = true;
};

class Transport {
 public:
  // `endpoints` outlives it.
  Transport(boost::asio::io_context& context, const Endpoints& endpoints)
      : endpoints_(endpoints), socket_(context) {}

  // TCP, and the handshake of TLS.
  boost::asio::awaitable<boost::system::error_code> Connect(
      const boost::asio::ip::tcp::endpoint& address);
  boost::asio::awaitable<void> WriteAll(std::string_view bytes);
  boost::asio::awaitable<size_t> ReadSome(boost::asio::mutable_buffer into,
                                          boost::system::error_code& ec);
  bool is_open() const { return socket_.is_open(); }
  void Close();

 private:
  const Endpoints& endpoints_;
  boost::asio::ip::tcp::socket socket_;
  std::optional<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> tls_;
};

}  // namespace millrace::loadtest
