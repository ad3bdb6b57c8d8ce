// One WebSocket (RFC 6455) over a connection, by Boost.Beast: the upgrade,
// frames, pings and the closing handshake. Messages go to a handler one by
// one; a read is under way meanwhile, so that a client that leaves is noticed.
// At most one message is computed and one waits; then nothing more is read.
//
// It is moved on by its session, which waits in between:
//
//   while (socket.Step(draining)) co_await Wait(socket.deadline());
//
// `ring` is called when something happened, on the I/O thread.
//
// I/O thread only.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/http/detail/conn.h"
#include "server/http/message.h"
#include "server/http/site.h"
#include "server/http/socket_handler.h"

namespace millrace::server::http {

// Whether the head asks for the upgrade.
bool AsksForWebSocket(const HttpRequest& head);

class WebSocket {
 public:
  struct Parts {
    const Site* site = nullptr;
    Conn* conn = nullptr;                        // both outlive it
    boost::asio::io_context* context = nullptr;  // likewise
    HttpRequest head = {};
    // Of the response that accepts the upgrade.
    std::vector<std::pair<std::string, std::string>> headers = {};
    std::string input = {};  // bytes that were read behind the head
    std::shared_ptr<SocketHandler> handler = {};
    std::function<void()> ring = {};
  };
  explicit WebSocket(Parts parts);
  // Nothing of it is under way: Step gave false.
  ~WebSocket();

  // False when it is over.
  bool Step(bool draining);
  std::chrono::steady_clock::time_point deadline() const;
  // Without a word to the peer; Step still waits for what is under way.
  void Abort();

  bool ended_well() const;  // by a closing handshake
  bool broken() const;      // the peer cannot be told anything any more
  int64_t sent_bytes() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::server::http
