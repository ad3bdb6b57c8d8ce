// What a route does with the messages of one WebSocket. The connection hands
// them over one by one and sends back what comes for each:
//
//   handler->OnMessage(std::move(message), answer, stop_token);
//
// A route with a socket has a function that makes a handler of the head of the
// request that asks for the upgrade.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "config/base/status.h"

namespace millrace::server::http {

class Exchange;
struct Site;

struct SocketMessage {
  std::string bytes;
  bool is_text = false;          // valid UTF-8 then
  std::shared_ptr<void> charge;  // counts the bytes while it lives
};

// Codes of the closing handshake (RFC 6455, section 7.4.1, and the registry of
// its section 11.7).
enum class SocketClose : uint16_t {
  kNone = 0,
  kNormal = 1000,
  kPolicy = 1008,          // the key is not good any more
  kServiceRestart = 1012,  // the state is gone; connect again
  kTryAgainLater = 1013,   // no room for it now
};

struct SocketAnswer {
  std::string text;
  SocketClose close = SocketClose::kNone;  // else it is the last one
  std::string reason = {};                 // of the closing
};

class SocketHandler {
 public:
  // The connection is gone when it is destroyed, from any thread.
  virtual ~SocketHandler() = default;

  // I/O thread; must not wait. `answer` is called once for each message, from
  // any thread, maybe before this returns; the next message comes after it.
  // `stop` is requested when the client is gone.
  using Answer = std::function<void(SocketAnswer)>;
  virtual void OnMessage(SocketMessage message, Answer answer,
                         std::stop_token stop) = 0;
};

// I/O thread. The error becomes the answer to the request, instead of the
// upgrade.
using SocketFunction = StatusOr<std::shared_ptr<SocketHandler>> (*)(
    const Site& site, const std::shared_ptr<Exchange>& exchange);

}  // namespace millrace::server::http
