// One connection: a coroutine that reads a request, hands it to its route, and
// writes the response, until either side closes it.
//
// The coroutine waits in one place only, on one timer that is both its
// deadline and its bell: reads and writes complete by ringing it, and so do
// answers from other threads. A read is always under way, also while an answer
// is being made, so that a client that goes away is noticed at once and the
// request's stop_token fires. A client that closes only its sending side while
// it still wants an answer made by a model is taken as gone.
//
// I/O thread only: all of a session lives on its io_context's one thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "server/http/detail/conn.h"
#include "server/http/exchange.h"
#include "server/http/gatekeeper.h"
#include "server/http/request_parser.h"
#include "server/http/router.h"
#include "server/http/site.h"

namespace millrace::server::http {

class Session;

// What the sessions of one I/O thread share.
struct SessionGroup {
  const Site* site = nullptr;
  boost::asio::io_context* context = nullptr;
  std::unordered_set<Session*> sessions;
  bool draining = false;
};

class Session {
 public:
  using Executor = boost::asio::io_context::executor_type;
  template <typename T>
  using Task = boost::asio::awaitable<T, Executor>;

  // Starts serving; the session owns itself until its connection is done.
  // `full`: there is no place for another connection. Then it answers one
  // request of a scraper or a probe, anything else with 503, and closes.
  static void Start(SessionGroup& group, std::unique_ptr<Conn> conn,
                    std::span<const Route> routes, bool full);

  ~Session();

  // Closes when idle, else after the answer under way. A connection without
  // a request so far gets a moment for its first.
  void Drain() { Ring(); }
  // Ends at once; answers under way are abandoned.
  void Abort();

 private:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr Time kNoDeadline = Time::max();
  using Timer = boost::asio::basic_waitable_timer<
      std::chrono::steady_clock,
      boost::asio::wait_traits<std::chrono::steady_clock>, Executor>;

  Session(SessionGroup& group, std::unique_ptr<Conn> conn,
          std::span<const Route> routes, bool full);
  static Task<void> RunOwned(std::unique_ptr<Session> session);

  Task<void> Run();
  // Each gives false when the connection is not to be used again.
  Task<bool> ServeOne();
  Task<bool> ReadHead(RequestParser& parser, std::optional<Status>& failure);
  Task<bool> ReadBody(RequestParser& parser, BodyCharge& charge,
                      std::optional<Status>& failure);
  // What these take by reference lives until they have ended, since they are
  // awaited where they are called. A copy would make the frame of the caller so
  // large that Asio does not keep its memory for the next request.
  //
  // session_socket.cc: the head asks a route that has a socket.
  Task<bool> ServeSocket(HttpRequest& head, bool keep_alive);
  Task<bool> AnswerFull();
  Task<bool> AnswerEarly(HttpResponse& response, bool keep_alive);
  Task<bool> AnswerFrom(std::shared_ptr<Exchange> exchange, bool keep_alive);
  Task<bool> WriteAll(std::string_view bytes, bool stop_at_end_of_input);
  Task<void> Linger();
  Task<void> Settle();

  void BeginRequest();
  void AddHeaders(HttpResponse& response) const;
  // `result`: the route's status; 0 when it was never asked.
  void Audit(int result, const Exchange::Facts* facts) const;
  void EndRequest(Outcome outcome, int result, const Exchange::Facts* facts);
  std::optional<Status> Parse(RequestParser& parser, bool& progressed);

  // True when rung, false when the deadline passed first.
  Task<bool> Wait(Time deadline);
  void Ring();
  void StartRead();
  std::string_view input() const {
    return {buffer_.data() + begin_, end_ - begin_};
  }
  Time After(int64_t ms) const {
    return std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
  }
  bool draining() const { return group_.draining; }
  bool leaving() const { return site_.leaving.load(std::memory_order_relaxed); }

  SessionGroup& group_;
  const Site& site_;
  const std::unique_ptr<Conn> conn_;
  const std::span<const Route> routes_;
  const bool full_;  // see Start

  Timer timer_;
  bool waiting_ = false;
  bool rung_ = false;

  // Bytes read and not yet taken are [begin_, end_). While a read is under way
  // it writes behind end_, so the buffer neither moves nor grows then.
  std::vector<char> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  bool reading_ = false;
  bool input_ended_ = false;  // the peer sends no more
  bool broken_ = false;       // neither read nor write can succeed
  bool writing_ = false;
  ptrdiff_t written_ = 0;
  bool write_timed_out_ = false;
  bool aborted_ = false;
  bool asked_ = false;   // it has had a request
  bool linger_ = false;  // the last answer said "Connection: close"

  // The request under way, for the access log.
  std::shared_ptr<Trace> trace_;
  std::shared_ptr<Exchange> exchange_;
  RouteMatch match_;
  Access access_ = Access::kAnyKey;  // what the route wants
  CallerPtr caller_;                 // null: the route wants no key
  Permit permit_;
  Clock::Time accepted_;  // its first byte
  std::string method_, path_;
  bool http10_ = false;
  int status_ = 0;
  int64_t body_bytes_ = 0;
};

}  // namespace millrace::server::http
