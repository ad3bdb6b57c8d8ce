// A Conn that speaks TLS over a connected TCP socket.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <memory>

#include "server/http/detail/conn.h"
#include "server/tls.h"

namespace millrace::server::http {

// The handshake runs with the first read or write and has `handshake_timeout`.
// The connection keeps its certificate until it ends. Null when there is no
// memory for it.
std::unique_ptr<Conn> MakeTlsConn(
    boost::asio::ip::tcp::socket socket,
    std::shared_ptr<const CertificateVersion> certificate,
    std::chrono::milliseconds handshake_timeout);

}  // namespace millrace::server::http
