// A connection as Asio's streams are read and written, for Beast's WebSocket.
// Included by web_socket.cc alone.
#pragma once

#include <algorithm>
#include <boost/asio/async_result.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/role.hpp>
#include <boost/system/error_code.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "server/http/detail/conn.h"

namespace millrace::server::http {

class ConnStream {
 public:
  using executor_type = boost::asio::io_context::executor_type;
  using Error = boost::system::error_code;

  // `input` was read already and comes first. All outlive the stream.
  ConnStream(Conn* conn, boost::asio::io_context* context, std::string input)
      : conn_(conn), context_(context), input_(std::move(input)) {}

  executor_type get_executor() { return context_->get_executor(); }

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(Error, size_t)>(
        [this](auto handler, boost::asio::mutable_buffer into) {
          auto done = Shared(std::move(handler));
          if (into.size() == 0 || taken_ < input_.size()) {
            return Later(done, Error(), TakeInput(into));
          }
          conn_->Read({static_cast<char*>(into.data()), into.size()},
                      [this, done](ptrdiff_t n) {
                        heard_ = std::chrono::steady_clock::now();
                        Finish(*done, n);
                      });
        },
        token, First<boost::asio::mutable_buffer>(buffers));
  }

  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(Error, size_t)>(
        [this](auto handler, boost::asio::const_buffer from) {
          auto done = Shared(std::move(handler));
          const std::string_view bytes(static_cast<const char*>(from.data()),
                                       from.size());
          closing_ = WithReason(bytes);
          if (!closing_.empty()) return WriteClosing(done, bytes.size());
          const ptrdiff_t sent = bytes.empty() ? 0 : conn_->TryWrite(bytes);
          if (bytes.empty() || sent > 0) {
            return Later(done, Error(), static_cast<size_t>(sent));
          }
          if (sent < 0) {
            return Later(done, boost::asio::error::connection_reset, 0);
          }
          conn_->Write(bytes, [done](ptrdiff_t n) { Finish(*done, n); });
        },
        token, First<boost::asio::const_buffer>(buffers));
  }

  void ShutdownSend() { conn_->ShutdownSend(); }
  // When the peer last sent anything.
  std::chrono::steady_clock::time_point heard() const { return heard_; }

 private:
  // The connection's callbacks can be copied, Asio's handlers cannot.
  template <typename Handler>
  static std::shared_ptr<Handler> Shared(Handler handler) {
    return std::make_shared<Handler>(std::move(handler));
  }

  template <typename Buffer, typename Buffers>
  static Buffer First(const Buffers& buffers) {
    const auto end = boost::asio::buffer_sequence_end(buffers);
    for (auto at = boost::asio::buffer_sequence_begin(buffers); at != end;
         ++at) {
      const Buffer buffer(*at);
      if (buffer.size() > 0) return buffer;
    }
    return {};
  }

  template <typename Handler>
  void Later(const std::shared_ptr<Handler>& handler, Error error, size_t n) {
    boost::asio::post(*context_,
                      [handler, error, n] { std::move (*handler)(error, n); });
  }

  // Beast closes a connection whose peer breaks the protocol with a code alone.
  // That frame with a text for people, or nothing where `frame` is not such: a
  // write of Beast's begins with a frame's head, and is one of four bytes only
  // where a close frame has no text.
  static std::string WithReason(std::string_view frame) {
    constexpr std::string_view kBareClose = "\x88\x02";
    if (frame.size() != 4 || !frame.starts_with(kBareClose)) return {};
    std::string_view reason;
    switch (static_cast<uint8_t>(frame[2]) << 8 |
            static_cast<uint8_t>(frame[3])) {
      case 1002:
        reason = "a frame broke the protocol (RFC 6455)";
        break;
      case 1007:
        reason = "the text of a message is not UTF-8";
        break;
      case 1009:
        reason = "a message is too long (session_max_message_size)";
        break;
      default:
        return {};
    }
    std::string longer(frame);
    longer[1] = static_cast<char>(2 + reason.size());
    return longer.append(reason);
  }

  // All of it; the writer counts the `told` bytes that it gave.
  template <typename Handler>
  void WriteClosing(const std::shared_ptr<Handler>& done, size_t told) {
    conn_->Write(closing_, [this, done, told](ptrdiff_t n) {
      if (n > 0 && static_cast<size_t>(n) < closing_.size()) {
        closing_.erase(0, static_cast<size_t>(n));
        return WriteClosing(done, told);
      }
      Finish(*done, n > 0 ? static_cast<ptrdiff_t>(told) : n);
    });
  }

  template <typename Handler>
  static void Finish(Handler& handler, ptrdiff_t n) {
    const Error error = n > 0    ? Error()
                        : n == 0 ? Error(boost::asio::error::eof)
                                 : Error(boost::asio::error::connection_reset);
    std::move(handler)(error, n > 0 ? static_cast<size_t>(n) : 0);
  }

  size_t TakeInput(boost::asio::mutable_buffer into) {
    const size_t n = std::min(into.size(), input_.size() - taken_);
    if (n > 0) std::memcpy(into.data(), input_.data() + taken_, n);
    taken_ += n;
    if (taken_ == input_.size()) {
      std::string().swap(input_);
      taken_ = 0;
    }
    return n;
  }

  Conn* const conn_;
  boost::asio::io_context* const context_;
  std::string input_;
  size_t taken_ = 0;
  std::string closing_;  // what is left of a close frame
  std::chrono::steady_clock::time_point heard_ =
      std::chrono::steady_clock::now();
};

// What Beast calls behind the closing handshake, found by the stream's type.
inline void teardown(boost::beast::role_type, ConnStream& stream,
                     boost::system::error_code& error) {
  stream.ShutdownSend();
  error = {};
}
template <typename Handler>
void async_teardown(boost::beast::role_type, ConnStream& stream,
                    Handler&& handler) {
  stream.ShutdownSend();
  boost::asio::post(stream.get_executor(),
                    [handler = std::forward<Handler>(handler)]() mutable {
                      std::move(handler)(boost::system::error_code());
                    });
}
inline void beast_close_socket(ConnStream& stream) { stream.ShutdownSend(); }

}  // namespace millrace::server::http
