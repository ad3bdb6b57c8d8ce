// A connection as a session sees it: bytes in, bytes out, closed. There is
// one for TCP, one for TLS, and one in memory for tests. Streams stay behind
// this interface, so that only a few source files include Beast and Asio.
//
// One read and one write may be under way at a time. A completion is never
// called from inside the call that began it. I/O thread only.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace millrace::server::http {

class Conn {
 public:
  virtual ~Conn() = default;

  // done(n): n > 0 bytes were read, 0: the peer sends no more, < 0: broken or
  // closed. `into` is lent until then.
  virtual void Read(std::span<char> into,
                    std::function<void(ptrdiff_t)> done) = 0;
  // Writes what goes without waiting: 0 … all of it; < 0: broken.
  virtual ptrdiff_t TryWrite(std::string_view bytes) = 0;
  // Waits until some bytes went: done(n > 0), or done(< 0) when broken or
  // closed. `bytes` are lent until then.
  virtual void Write(std::string_view bytes,
                     std::function<void(ptrdiff_t)> done) = 0;
  // Nothing more will be written; the peer sees the end.
  virtual void ShutdownSend() = 0;
  // What is under way completes with < 0.
  virtual void Close() = 0;
  virtual const std::string& peer() const = 0;  // "127.0.0.1:40112"
};

}  // namespace millrace::server::http
