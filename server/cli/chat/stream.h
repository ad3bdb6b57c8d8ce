// Bytes to and from a server over a connected, non-blocking socket, in clear or
// by TLS. Nothing here waits: a call that would wait says kWait, and wanted()
// is what to poll for.
//
//   ASSIGN_OR_RETURN(auto stream, Stream::Open(std::move(socket), url));
//   while (stream->Handshake() == Stream::kWait) { ... poll ... }
//   stream->Send("GET / HTTP/1.1\r\n\r\n");
//
// Used by one thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "config/base/status.h"
#include "server/cli/chat/http_client.h"

namespace millrace::server {

// Owns a file descriptor.
class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  ~Socket();
  int fd() const { return fd_; }

 private:
  int fd_;
};

class Stream {
 public:
  static constexpr ssize_t kWait = -1;
  static constexpr ssize_t kBroken = -2;  // error() says why

  // INVALID_ARGUMENT when a file of the URL's TLS options cannot be used.
  static StatusOr<std::unique_ptr<Stream>> Open(Socket socket,
                                                const HttpUrl& url);
  virtual ~Stream() = default;

  // Until it gives 1.
  virtual ssize_t Handshake() = 0;
  // How many bytes went, or kWait, kBroken.
  virtual ssize_t Send(std::string_view bytes) = 0;
  // How many bytes came, 0 at the end, or kWait, kBroken.
  virtual ssize_t Receive(std::span<char> into) = 0;

  int fd() const { return socket_.fd(); }
  short wanted() const { return wanted_; }  // POLLIN or POLLOUT
  const std::string& error() const { return error_; }

 protected:
  explicit Stream(Socket socket) : socket_(std::move(socket)) {}

  const Socket socket_;
  short wanted_ = 0;
  std::string error_;
};

}  // namespace millrace::server
