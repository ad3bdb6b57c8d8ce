// A session whose client asked for a WebSocket: the request ends when the
// socket does, and so does the connection.
//
// No co_await stands in the condition of an if or while, see session.cc.
#include <string>
#include <utility>

#include "config/base/utf8.h"
#include "server/http/detail/session.h"
#include "server/http/detail/web_socket.h"
#include "server/http/origin.h"
#include "server/http/refusal.h"

namespace millrace::server::http {
namespace {

// Counts one of the open sockets of a site.
class SocketPlace {
 public:
  explicit SocketPlace(const Site& site)
      : site_(site),
        open_(site.num_sockets.fetch_add(1, std::memory_order_relaxed) + 1) {
    site_.observer.sockets.Add(1);
  }
  SocketPlace(const SocketPlace&) = delete;
  SocketPlace& operator=(const SocketPlace&) = delete;
  ~SocketPlace() {
    site_.num_sockets.fetch_sub(1, std::memory_order_relaxed);
    site_.observer.sockets.Add(-1);
  }
  Status status() const {
    const int64_t most = site_.settings.max_sessions;
    if (open_ <= most) return OkStatus();
    return Unavailable("this server has " + std::to_string(most) +
                       " sessions open, which is its limit; try again, or "
                       "raise max_sessions")
        .Because("too_many_sessions")
        .RetryAfterMs(1000);
  }

 private:
  const Site& site_;
  const int64_t open_;
};

// No preflight asks whether a page may open a socket.
Status CheckOrigin(const Site& site, const HttpRequest& head) {
  if (IsAllowedOrigin(site.settings, head)) return OkStatus();
  return Status(StatusCode::kPermissionDenied,
                "pages of '" + Shortened(head.Header("origin"), 100) +
                    "' may not open sessions here; set "
                    "cors_allow_origin to allow them")
      .Because("origin_not_allowed");
}

HttpResponse UpgradeWanted() {
  HttpResponse response = OipErrorResponse(InvalidArgument(
      "a session is a WebSocket (RFC 6455, version 13); ask for the upgrade "
      "with a client of WebSockets"));
  response.status = 426;
  response.headers.emplace_back("Upgrade", "websocket");
  response.headers.emplace_back("Sec-WebSocket-Version", "13");
  return response;
}

}  // namespace

Session::Task<bool> Session::ServeSocket(HttpRequest& head, bool keep_alive) {
  if (!AsksForWebSocket(head)) {
    HttpResponse wanted = UpgradeWanted();
    co_return co_await AnswerEarly(wanted, keep_alive);
  }
  const SocketPlace place(site_);
  Status status = place.status();
  if (status.ok()) status = CheckOrigin(site_, head);
  if (reading_) {
    // Sent before the response to the request ahead of it was there: a read is
    // under way into this buffer.
    status = InvalidArgument(
        "the upgrade came before the response to the request ahead of it; "
        "wait for that response, or open a connection of its own");
    keep_alive = false;
  }
  auto exchange =
      std::make_shared<Exchange>(head, match_.params, trace_, nullptr, caller_);
  std::shared_ptr<SocketHandler> handler;
  if (status.ok()) {
    auto made = match_.route->socket(site_, exchange);
    status = made.status();
    if (made.ok()) handler = *std::move(made);
  }
  if (!status.ok()) {
    if (status.reason() == "too_many_sessions") {
      site_.observer.sockets_refused.Add();
    }
    HttpResponse refusal = Refusal(site_, path_, status);
    co_return co_await AnswerEarly(refusal, keep_alive);
  }
  // Each message is admitted for itself, and the handler has the session's
  // place.
  permit_ = Permit();
  HttpResponse common;
  AddHeaders(common);
  std::string input(this->input());
  begin_ = end_ = 0;
  std::vector<char>().swap(buffer_);
  status_ = 101;
  bool ended_well = false;
  bool broken = false;
  {
    WebSocket socket({.site = &site_,
                      .conn = conn_.get(),
                      .context = group_.context,
                      .head = std::move(head),
                      .headers = std::move(common.headers),
                      .input = std::move(input),
                      .handler = std::move(handler),
                      .ring = [this] { Ring(); }});
    bool open = socket.Step(draining());
    while (open) {
      co_await Wait(socket.deadline());
      if (aborted_) socket.Abort();
      open = socket.Step(draining());
    }
    ended_well = socket.ended_well();
    broken = socket.broken();
    body_bytes_ = socket.sent_bytes();
  }
  Exchange::Facts facts = exchange->facts();
  EndRequest(ended_well ? Outcome::kOk : Outcome::kCancelled, status_, &facts);
  linger_ = !broken;
  co_return false;
}

}  // namespace millrace::server::http
