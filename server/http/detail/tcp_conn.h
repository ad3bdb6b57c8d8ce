// A Conn over a connected TCP socket.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <memory>

#include "server/http/detail/conn.h"

namespace millrace::server::http {

std::unique_ptr<Conn> MakeTcpConn(boost::asio::ip::tcp::socket socket);

}  // namespace millrace::server::http
