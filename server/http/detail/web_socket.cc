// No compression: a deflated message would need a window of 32 KiB for each
// session that only waits.
#include "server/http/detail/web_socket.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <boost/beast/websocket/stream.hpp>
#include <cctype>
#include <optional>
#include <string_view>

#include "config/base/mutex.h"
#include "server/http/detail/conn_stream.h"
#include "server/http/socket_protocol.h"
#include "server/version.h"

namespace millrace::server::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace websocket = beast::websocket;
using boost::system::error_code;
using Time = std::chrono::steady_clock::time_point;

constexpr size_t kReadBytes = 16 << 10;
constexpr auto kHandshakeTime = std::chrono::seconds(10);
constexpr auto kCloseTime = std::chrono::seconds(2);
constexpr int64_t kAbsurdTimes = 16;
constexpr size_t kReasonBytes = 123;  // RFC 6455, section 5.5

bool HasToken(std::string_view list, std::string_view token) {
  std::string lower(list);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return lower.find(token) != std::string::npos;
}

using Upgrade = beast::http::request<beast::http::empty_body>;

Upgrade UpgradeOf(const HttpRequest& head) {
  Upgrade request;
  request.method(beast::http::verb::get);
  request.target(head.target);
  request.version(11);
  for (const auto& [name, value] : head.headers) request.insert(name, value);
  // Compression is not offered, and the subprotocol is chosen here.
  request.erase(beast::http::field::sec_websocket_extensions);
  request.erase(beast::http::field::sec_websocket_protocol);
  return request;
}

// Where the thread that computed an answer puts it for the I/O thread. Shared
// with the request that is computed, which may outlive the connection.
struct PendingAnswer {
  Mutex mu;
  std::optional<SocketAnswer> answer GUARDED_BY(mu);
  std::function<void()> wake GUARDED_BY(mu);  // none: the socket is gone
};

}  // namespace

bool AsksForWebSocket(const HttpRequest& head) {
  return head.method == "GET" && !head.http10 &&
         HasToken(head.Header("upgrade"), "websocket") &&
         HasToken(head.Header("connection"), "upgrade") &&
         head.Header("sec-websocket-version") == "13" &&
         head.HasHeader("sec-websocket-key");
}

class WebSocket::Impl {
 public:
  explicit Impl(Parts parts)
      : parts_(std::move(parts)),
        settings_(parts_.site->settings),
        stream_(parts_.conn, parts_.context, std::move(parts_.input)),
        upgrade_(UpgradeOf(parts_.head)),
        pending_(std::make_shared<PendingAnswer>()) {
    {
      MutexLock lock(pending_->mu);
      pending_->wake = [this, weak = std::weak_ptr<PendingAnswer>(pending_)] {
        // The socket and the posted call are of one thread.
        asio::post(*parts_.context, [this, weak] {
          const auto alive = weak.lock();
          if (alive != nullptr && IsHeard(*alive)) parts_.ring();
        });
      };
    }
    // Time-outs are ours: one timer for a connection.
    stream_.set_option(websocket::stream_base::timeout{
        websocket::stream_base::none(), websocket::stream_base::none(), false});
    // Messages that are too long are refused here, with a reason; Beast, which
    // gives none, refuses at once what a frame only says it will have.
    stream_.read_message_max(static_cast<uint64_t>(
        kAbsurdTimes * settings_.session_max_message_bytes));
    stream_.auto_fragment(false);
    stream_.text(true);
    stream_.set_option(websocket::stream_base::decorator(
        [headers = parts_.headers,
         protocol = std::string(ChosenProtocol(parts_.head))](
            websocket::response_type& response) {
          response.set(beast::http::field::server,
                       "millrace/" + std::string(Version()));
          if (!protocol.empty()) {
            response.set(beast::http::field::sec_websocket_protocol, protocol);
          }
          for (const auto& [name, value] : headers) {
            response.insert(name, value);
          }
        }));
    last_message_ = std::chrono::steady_clock::now();
    accepting_ = true;
    stream_.async_accept(upgrade_, [this](error_code error) {
      accepting_ = false;
      open_ = !error;
      if (error) Fail(error);
      last_message_ = std::chrono::steady_clock::now();
      parts_.ring();
    });
  }

  ~Impl() {
    {
      MutexLock lock(pending_->mu);
      pending_->wake = nullptr;
    }
    stop_.request_stop();
  }

  bool Step(bool draining) {
    const Time now = std::chrono::steady_clock::now();
    TakeAnswer(now);
    if (now >= deadline()) Expire(now);
    if (draining && !closing_ && !computing_) {
      Want(websocket::close_code::going_away, "the server is stopping");
    }
    if (dead_) {
      stop_.request_stop();
      if (broken_) parts_.conn->Close();
      return accepting_ || reading_ || writing_ || pinging_ || close_sent_;
    }
    if (!open_) return true;
    if (message_.has_value() && !computing_ && !writing_ && outbox_.empty() &&
        !want_close_) {
      Dispatch();
      TakeAnswer(now);
    }
    // Behind the dispatch: also while the first message is computed.
    if (!reading_ && !message_.has_value() && !want_close_) Read();
    if (!outbox_.empty() && !writing_) Write(now);
    if (want_close_ && !closing_ && !computing_ && !writing_) Close(now);
    if (!closing_ && now >= next_ping()) Ping(now);
    return true;
  }

  Time deadline() const {
    if (broken_) return Time::max();  // what is under way fails
    if (accepting_) return last_message_ + kHandshakeTime;
    if (writing_ || closing_) return deadline_;
    if (dead_) return dead_since_ + kCloseTime;
    const Time alive = std::min(next_ping(), pong_deadline());
    if (computing_) return alive;
    return std::min(alive, idle_deadline());
  }

  void Abort() { Die(true); }
  bool broken() const { return broken_; }
  bool ended_well() const { return ended_well_; }
  int64_t sent_bytes() const { return sent_bytes_; }

 private:
  std::chrono::milliseconds ping_interval() const {
    return std::chrono::milliseconds(settings_.session_ping_interval_ms);
  }
  Time idle_deadline() const {
    return last_message_ +
           std::chrono::milliseconds(settings_.session_idle_timeout_ms);
  }
  // While nothing is read, as one message waits for another, no pong is heard:
  // then the peer is not asked either.
  bool awaits_pong() const { return pinged_ > stream_.next_layer().heard(); }
  Time next_ping() const {
    if (!reading_ || pinging_ || awaits_pong()) return Time::max();
    return stream_.next_layer().heard() + ping_interval();
  }
  Time pong_deadline() const {
    if (!reading_ || !awaits_pong()) return Time::max();
    return pinged_ + ping_interval();
  }

  static bool IsHeard(PendingAnswer& pending) {
    MutexLock lock(pending.mu);
    return pending.wake != nullptr;
  }

  void Want(websocket::close_code code, std::string reason) {
    if (want_close_) return;
    want_close_ = true;
    reason.resize(std::min(reason.size(), kReasonBytes));
    reason_ = websocket::close_reason(code, reason);
  }

  void Die(bool broken) {
    if (!dead_) dead_since_ = std::chrono::steady_clock::now();
    dead_ = true;
    broken_ = broken_ || broken;
  }

  // Of its own errors Beast has told the peer, which still has to read that.
  void Fail(const error_code& error) {
    ended_well_ = ended_well_ || error == websocket::error::closed;
    const auto& own =
        websocket::make_error_code(websocket::error::closed).category();
    Die(error.category() != own && error != asio::error::operation_aborted);
  }

  // Nothing came, or nothing could be sent, for too long.
  void Expire(Time now) {
    if (dead_ || accepting_ || writing_ || closing_ || now >= pong_deadline()) {
      Die(true);
      return;
    }
    if (computing_ || now < idle_deadline()) return;  // time for a ping
    Want(websocket::close_code::going_away,
         "no message for " + std::to_string(settings_.session_idle_timeout_ms) +
             " ms");
  }

  void TakeAnswer(Time now) {
    std::optional<SocketAnswer> answer;
    {
      MutexLock lock(pending_->mu);
      answer.swap(pending_->answer);
    }
    if (!answer.has_value() || !computing_) return;  // one for each message
    computing_ = false;
    last_message_ = now;
    outbox_ = std::move(answer->text);
    if (answer->close != SocketClose::kNone) {
      Want(static_cast<websocket::close_code>(answer->close),
           std::move(answer->reason));
    }
  }

  // Bytes are counted as they come, so that many long messages at once do not
  // take more memory than bodies of requests may.
  void Read() {
    reading_ = true;
    if (!pinging_) pinged_ = Time();
    if (charge_ == nullptr) {
      charge_ = std::make_shared<BodyCharge>(parts_.site->shared_from_this());
    }
    stream_.async_read_some(
        buffer_, kReadBytes, [this](error_code error, size_t n) {
          reading_ = false;
          if (error) {
            Fail(error);
          } else if (static_cast<int64_t>(buffer_.size()) >
                     settings_.session_max_message_bytes) {
            buffer_ = beast::flat_buffer();
            Want(websocket::close_code::too_big,
                 "a message may have " +
                     std::to_string(settings_.session_max_message_bytes) +
                     " bytes (session_max_message_size)");
          } else if (!charge_->Add(static_cast<int64_t>(n))) {
            buffer_ = beast::flat_buffer();
            Want(websocket::close_code::try_again_later,
                 "too many bytes of messages are under way");
          } else if (stream_.is_message_done()) {
            const auto bytes = buffer_.data();
            message_ = {
                .bytes = std::string(static_cast<const char*>(bytes.data()),
                                     bytes.size()),
                .is_text = stream_.got_text(),
                .charge = std::move(charge_)};
            buffer_ = beast::flat_buffer();
            last_message_ = std::chrono::steady_clock::now();
          }
          parts_.ring();
        });
  }

  void Dispatch() {
    computing_ = true;
    parts_.site->observer.socket_messages.Add();
    SocketMessage message = *std::move(message_);
    message_.reset();
    parts_.handler->OnMessage(
        std::move(message),
        [pending = pending_](SocketAnswer answer) {
          MutexLock lock(pending->mu);
          pending->answer = std::move(answer);
          if (pending->wake != nullptr) pending->wake();
        },
        stop_.get_token());
  }

  void Write(Time now) {
    writing_ = true;
    deadline_ = now + std::chrono::milliseconds(settings_.write_timeout_ms);
    stream_.async_write(asio::buffer(outbox_),
                        [this](error_code error, size_t n) {
                          writing_ = false;
                          sent_bytes_ += static_cast<int64_t>(n);
                          std::string().swap(outbox_);
                          if (error) Fail(error);
                          parts_.ring();
                        });
  }

  void Ping(Time now) {
    pinging_ = true;
    pinged_ = now;
    stream_.async_ping({}, [this](error_code error) {
      pinging_ = false;
      if (error) Fail(error);
      parts_.ring();
    });
  }

  // A read that is under way takes the peer's answer to it.
  void Close(Time now) {
    closing_ = close_sent_ = true;
    deadline_ = now + kCloseTime;
    stream_.async_close(reason_, [this](error_code error) {
      close_sent_ = false;
      if (error) Fail(error);
      Die(false);
      ended_well_ = ended_well_ || !error;
      parts_.ring();
    });
  }

  Parts parts_;
  const config::ServerSettings& settings_;
  websocket::stream<ConnStream, false> stream_;
  const Upgrade upgrade_;  // lent to the stream
  const std::shared_ptr<PendingAnswer> pending_;
  std::stop_source stop_;

  // Operations of the stream that are under way.
  bool accepting_ = false;
  bool reading_ = false;
  bool writing_ = false;
  bool pinging_ = false;
  bool close_sent_ = false;

  bool open_ = false;
  bool dead_ = false;
  bool broken_ = false;  // neither read nor write can succeed
  bool ended_well_ = false;
  bool want_close_ = false;
  bool closing_ = false;
  bool computing_ = false;  // the handler owes an answer
  websocket::close_reason reason_;
  beast::flat_buffer buffer_;           // of the message that comes in
  std::shared_ptr<BodyCharge> charge_;  // counts it
  std::optional<SocketMessage> message_;
  std::string outbox_;
  Time last_message_{};
  Time pinged_{};
  Time deadline_{};  // of what is written
  Time dead_since_{};
  int64_t sent_bytes_ = 0;
};

WebSocket::WebSocket(Parts parts)
    : impl_(std::make_unique<Impl>(std::move(parts))) {}
WebSocket::~WebSocket() = default;
bool WebSocket::Step(bool draining) { return impl_->Step(draining); }
Time WebSocket::deadline() const { return impl_->deadline(); }
void WebSocket::Abort() { impl_->Abort(); }
bool WebSocket::ended_well() const { return impl_->ended_well(); }
bool WebSocket::broken() const { return impl_->broken(); }
int64_t WebSocket::sent_bytes() const { return impl_->sent_bytes(); }

}  // namespace millrace::server::http
