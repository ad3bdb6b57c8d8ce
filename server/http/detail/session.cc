// The session's coroutine. Time-outs do not cancel reads. They only end waits,
// because a read stays under way for the whole life of the connection; the one
// thing a time-out closes is a write to a client that does not read.
//
// No co_await stands in the condition of an if or while: g++ 12 then lays the
// coroutine's frame out wrongly (a variable of its own comes before the resume
// pointer) and the first resume jumps into nowhere.
#include "server/http/detail/session.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <utility>

#include "config/base/log.h"
#include "server/http/access.h"
#include "server/http/refusal.h"
#include "server/http/request_deadline.h"
#include "server/request_id.h"

namespace millrace::server::http {
namespace {

namespace asio = boost::asio;

constexpr size_t kFirstBufferBytes = 4 << 10;
constexpr size_t kIdleBufferBytes = 16 << 10;
constexpr size_t kBodyReadBytes = 64 << 10;
constexpr size_t kLeastReadBytes = 1 << 10;
// A refused body of at most this size is read and dropped, so that the
// connection can be used again.
constexpr uint64_t kDroppedBodyBytes = 64 << 10;
// What a body must bring in the mean of each header_timeout: no line that
// people use is slower.
constexpr int64_t kLeastBodyBytesPerSecond = 4 << 10;
constexpr int64_t kLingerMs = 1000;
// What a connection beyond max_connections asks has to arrive within so long.
constexpr int64_t kFullMs = 1000;
// The first request of a connection, once the server accepts no more of them.
constexpr int64_t kFirstRequestMs = 250;
constexpr int64_t kLingerBytes = 8 << 20;

RequestParser::Limits ParserLimits(const config::ServerSettings& settings) {
  return {.header_bytes = settings.http_max_header_bytes,
          .body_bytes = settings.http_max_input_bytes};
}

// Of a head that was refused: what its first line names, if it has two spaces.
std::string PathIn(std::string_view head) {
  const std::string_view line = head.substr(0, head.find('\r'));
  const size_t begin = std::min(line.find(' '), line.size());
  const size_t end = line.find_first_of(" ?", begin + 1);
  if (end == std::string_view::npos) return "";
  return std::string(line.substr(begin + 1, end - begin - 1));
}

}  // namespace

Session::Session(SessionGroup& group, std::unique_ptr<Conn> conn,
                 std::span<const Route> routes, bool full)
    : group_(group),
      site_(*group.site),
      conn_(std::move(conn)),
      routes_(routes),
      full_(full),
      timer_(group.context->get_executor()) {
  group_.sessions.insert(this);
  site_.observer.connections.Add(1);
}

Session::~Session() {
  if (exchange_ != nullptr) {
    exchange_->Detach();
    exchange_->RequestStop();
  }
  group_.sessions.erase(this);
  site_.observer.connections.Add(-1);
  site_.num_connections.fetch_sub(1, std::memory_order_relaxed);
}

void Session::Start(SessionGroup& group, std::unique_ptr<Conn> conn,
                    std::span<const Route> routes, bool full) {
  std::unique_ptr<Session> session(
      new Session(group, std::move(conn), routes, full));
  const Executor executor = group.context->get_executor();
  asio::co_spawn(executor, RunOwned(std::move(session)),
                 [](std::exception_ptr failure) {
                   if (failure == nullptr) return;
                   try {
                     std::rethrow_exception(failure);
                   } catch (const std::exception& error) {
                     LogError("connection failed", {{"error", error.what()}});
                   }
                 });
}

// The coroutine's frame owns the session.
Session::Task<void> Session::RunOwned(std::unique_ptr<Session> session) {
  co_await session->Run();
}

void Session::Abort() {
  aborted_ = true;
  broken_ = true;
  conn_->Close();
  Ring();
}

Session::Task<bool> Session::Wait(Time deadline) {
  if (std::exchange(rung_, false)) co_return true;
  timer_.expires_at(deadline);
  waiting_ = true;
  const auto [ec] = co_await timer_.async_wait(
      asio::as_tuple(asio::use_awaitable_t<Executor>()));
  waiting_ = false;
  co_return std::exchange(rung_, false) || ec == asio::error::operation_aborted;
}

void Session::Ring() {
  rung_ = true;
  if (waiting_) timer_.cancel();
}

void Session::StartRead() {
  if (reading_ || input_ended_ || broken_) return;
  if (begin_ == end_) begin_ = end_ = 0;
  const size_t most =
      std::max(static_cast<size_t>(site_.settings.http_max_header_bytes) +
                   kFirstBufferBytes,
               kBodyReadBytes);
  if (buffer_.size() - end_ < kLeastReadBytes && begin_ > 0) {
    std::copy(buffer_.data() + begin_, buffer_.data() + end_, buffer_.data());
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size()) {
    if (buffer_.size() >= most) return;  // full: the peer waits
    buffer_.resize(std::clamp(buffer_.size() * 2, kFirstBufferBytes, most));
  }
  reading_ = true;
  conn_->Read(std::span(buffer_).subspan(end_), [this](ptrdiff_t n) {
    reading_ = false;
    if (n > 0) end_ += static_cast<size_t>(n);
    if (n == 0) input_ended_ = true;
    if (n < 0) input_ended_ = broken_ = true;
    Ring();
  });
}

Session::Task<void> Session::Run() {
  bool again = true;
  while (again) again = co_await ServeOne();
  if (linger_) co_await Linger();
  conn_->Close();
  co_await Settle();
}

Session::Task<bool> Session::AnswerFull() {
  if (trace_ == nullptr) BeginRequest();
  site_.observer.connections_refused.Add();
  HttpResponse refusal = ErrorResponse(
      Unavailable("this server has " +
                  std::to_string(site_.settings.max_connections) +
                  " connections open, which is its limit; try again, or raise "
                  "max_connections")
          .Because("too_many_connections")
          .RetryAfterMs(1000));
  co_return co_await AnswerEarly(refusal, false);
}

// Reads and writes lend out our buffers: waits until none is under way.
Session::Task<void> Session::Settle() {
  while (reading_ || writing_) co_await Wait(kNoDeadline);
}

// Lets the peer read our last words: bytes that it still sends would make the
// kernel reset the connection and drop them (RFC 9112, section 9.6).
Session::Task<void> Session::Linger() {
  if (broken_ || input_ended_) co_return;
  conn_->ShutdownSend();
  const Time deadline = After(kLingerMs);
  int64_t dropped = 0;
  while (!broken_ && !input_ended_ && dropped < kLingerBytes) {
    dropped += static_cast<int64_t>(end_ - begin_);
    begin_ = end_;
    StartRead();
    const bool rung = co_await Wait(deadline);
    if (!rung) break;
  }
}

std::optional<Status> Session::Parse(RequestParser& parser, bool& progressed) {
  progressed = false;
  const bool had_head = parser.head_done();
  StatusOr<size_t> taken = parser.Put(input());
  if (!taken.ok()) return taken.status();
  begin_ += *taken;
  progressed = *taken > 0;
  if (!progressed && had_head && end_ - begin_ >= kBodyReadBytes) {
    return InvalidArgument("the request holds a line of more than " +
                           std::to_string(kBodyReadBytes) +
                           " bytes where a chunk's size should stand")
        .Because("malformed_http");
  }
  if (!had_head && parser.head_done()) {
    const HttpRequest& head = parser.head();
    trace_->request_id = RequestIdFrom(head.Header("x-request-id"));
    if (const RequestTraces* traces = site_.services.traces) {
      traces->Begin(head.Header("traceparent"), head.Header("tracestate"),
                    *trace_);
    }
    method_ = head.method;
    path_ = head.target.substr(0, head.target.find('?'));
    http10_ = head.http10;
  }
  return std::nullopt;
}

Session::Task<bool> Session::ReadHead(RequestParser& parser,
                                      std::optional<Status>& failure) {
  bool begun = false;
  bool hurried = false;
  Time deadline = After(full_ ? kFullMs : site_.settings.idle_timeout_ms);
  if (begin_ == end_ && !reading_ && buffer_.size() > kIdleBufferBytes) {
    std::vector<char>().swap(buffer_);  // many connections idle for long
    begin_ = end_ = 0;
  }
  while (true) {
    // Empty lines before a request are allowed (RFC 9112, section 2.2).
    while (!begun && begin_ < end_ &&
           (buffer_[begin_] == '\r' || buffer_[begin_] == '\n')) {
      ++begin_;
    }
    if (begin_ < end_) {
      if (!begun) {
        begun = true;
        BeginRequest();
        if (!full_) deadline = After(site_.settings.header_timeout_ms);
      }
      bool progressed = false;
      failure = Parse(parser, progressed);
      if (failure.has_value()) co_return true;
      if (parser.head_done()) co_return true;
      if (progressed) continue;
    }
    if (input_ended_ || broken_) {
      if (!begun || broken_) co_return false;
      failure = InvalidArgument("the request ended within its header")
                    .Because("malformed_http");
      co_return true;
    }
    if (draining() && !begun) {
      if (asked_) co_return false;
      if (!std::exchange(hurried, true)) {
        deadline = std::min(deadline, After(kFirstRequestMs));
      }
    }
    StartRead();
    const bool rung = co_await Wait(deadline);
    if (rung) continue;
    if (!begun) co_return false;  // idle for too long
    failure = InvalidArgument("the header did not arrive within " +
                              std::to_string(site_.settings.header_timeout_ms) +
                              " ms")
                  .Because("request_timeout");
    co_return true;
  }
}

// The time-out is for each piece of the body, so that a large one over a slow
// line gets through; a piece is what the slowest line brings in that time. A
// byte now and then is none: what has come of the body takes the room of
// others.
Session::Task<bool> Session::ReadBody(RequestParser& parser, BodyCharge& charge,
                                      std::optional<Status>& failure) {
  const int64_t piece =
      kLeastBodyBytesPerSecond * site_.settings.header_timeout_ms / 1000;
  int64_t of_piece = 0;
  Time deadline = After(site_.settings.header_timeout_ms);
  while (!parser.done()) {
    if (begin_ < end_) {
      bool progressed = false;
      const size_t before = begin_;
      failure = Parse(parser, progressed);
      if (failure.has_value()) co_return true;
      if (progressed) {
        const auto num_bytes = static_cast<int64_t>(begin_ - before);
        if (!charge.Add(num_bytes)) {
          failure =
              ResourceExhausted(
                  "too many bytes of request bodies are under way; try again "
                  "later, or raise http_max_input_size")
                  .Because("too_many_bodies")
                  .RetryAfterMs(1000);
          co_return true;
        }
        of_piece += num_bytes;
        if (of_piece >= piece) {
          of_piece = 0;
          deadline = After(site_.settings.header_timeout_ms);
        }
        continue;
      }
    }
    if (broken_) co_return false;
    if (input_ended_) {
      failure = InvalidArgument("the request ended within its body")
                    .Because("malformed_http");
      co_return true;
    }
    StartRead();
    const bool rung = co_await Wait(deadline);
    if (rung) continue;
    failure = InvalidArgument("only " + std::to_string(of_piece) +
                              " bytes of the body arrived in " +
                              std::to_string(site_.settings.header_timeout_ms) +
                              " ms, the least is " + std::to_string(piece) +
                              " in each header_timeout")
                  .Because("request_timeout");
    co_return true;
  }
  co_return true;
}

Session::Task<bool> Session::ServeOne() {
  RequestParser parser(ParserLimits(site_.settings));
  std::optional<Status> failure;
  const bool has_head = co_await ReadHead(parser, failure);
  if (full_ && !(has_head && !failure.has_value() && parser.done() &&
                 AnsweredWhenFull(method_, parser.head().target))) {
    co_return co_await AnswerFull();
  }
  if (!has_head) co_return false;
  if (failure.has_value()) {
    // g++ 12 destroys what a conditional makes within a co_await twice.
    if (path_.empty()) path_ = PathIn(input());
    HttpResponse refusal = Refusal(site_, path_, *failure);
    co_return co_await AnswerEarly(refusal, false);
  }
  Admission admission = Admit(site_, routes_, parser.head());
  if (!admission.answer.has_value()) {
    const Status in_time =
        CheckInTime(site_, admission.match, parser.head(), accepted_);
    if (!in_time.ok()) admission.answer = Refusal(site_, path_, in_time);
  }
  match_ = std::move(admission.match);
  access_ = admission.access;
  caller_ = std::move(admission.caller);
  permit_ = std::move(admission.permit);
  const bool keep_alive = parser.head().keep_alive && !full_;
  auto charge = std::make_shared<BodyCharge>(site_.shared_from_this());
  if (!parser.done()) {
    if (admission.answer.has_value()) {
      const std::optional<uint64_t> left = parser.body_left();
      if (!left.has_value() || *left > kDroppedBodyBytes ||
          parser.expects_continue()) {
        co_return co_await AnswerEarly(*admission.answer, false);
      }
    } else if (parser.expects_continue()) {
      const bool sent =
          co_await WriteAll("HTTP/1.1 100 Continue\r\n\r\n", false);
      if (!sent) co_return false;
    }
    const bool alive = co_await ReadBody(parser, *charge, failure);
    if (!alive) {
      EndRequest(Outcome::kCancelled, 0, nullptr);
      co_return false;
    }
    if (failure.has_value()) {
      admission.answer = Refusal(site_, path_, *failure);
      co_return co_await AnswerEarly(*admission.answer, false);
    }
  }
  if (admission.answer.has_value()) {
    co_return co_await AnswerEarly(*admission.answer, keep_alive);
  }
  if (match_.route->socket != nullptr && method_ == "GET") {
    HttpRequest head = parser.Take();
    co_return co_await ServeSocket(head, keep_alive);
  }
  // `this` is safe: the session detaches before it goes, and the posted call
  // finds the exchange detached then. Both happen on this thread.
  auto exchange =
      std::make_shared<Exchange>(parser.Take(), std::move(match_.params),
                                 trace_, std::move(charge), caller_);
  exchange->SetWake([this, weak = std::weak_ptr<Exchange>(exchange)] {
    asio::post(*group_.context, [this, weak] {
      const std::shared_ptr<Exchange> alive = weak.lock();
      if (alive != nullptr && !alive->detached()) Ring();
    });
  });
  exchange_ = exchange;
  match_.route->serve(site_, exchange);
  const bool again = co_await AnswerFrom(exchange, keep_alive);
  exchange->Detach();
  exchange_.reset();
  co_return again;
}

}  // namespace millrace::server::http
