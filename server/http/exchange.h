// One request and the way back to its client. The connection's coroutine makes
// it and hands it to a route; the route, or whatever the route started on other
// threads, answers through it:
//
//   exchange->Send(JsonResponse(200, body));            // the whole answer, or
//   exchange->BeginStream(head); exchange->Write(bytes); ... exchange->End();
//
// Nothing here blocks: bytes gather until the connection can write them, and
// what gathered meanwhile goes out as one piece. Their number is bounded, as an
// answer has a bounded number of tokens. Exactly one Send or End is owed,
// whatever happens.
//
// Thread-safe. Shared, because the connection may die before the answer ends
// and the answer may outlive the server's sockets.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/mutex.h"
#include "config/base/trace.h"
#include "server/auth.h"
#include "server/http/message.h"
#include "server/request_metrics.h"

namespace millrace::server::http {

class Exchange {
 public:
  // Fields of the access log beside the stamps.
  struct Facts {
    std::string model;
    int64_t prompt_tokens = -1;  // -1: none
    int64_t completion_tokens = -1;
    // Of an answer that failed after its status line was sent, or whose status
    // line says it.
    Status error = {};
    bool failed_late = false;
  };
  struct Output {
    std::optional<HttpResponse> head;
    bool whole = false;  // head carries the whole body, nothing follows
    std::string bytes;   // of a stream
    bool ended = false;
    bool close = false;  // the connection must not be used again
  };

  // `caller` is null where the route needs no key.
  Exchange(HttpRequest request, std::vector<std::string> params,
           std::shared_ptr<Trace> trace, std::shared_ptr<void> body_charge,
           CallerPtr caller = nullptr);

  const CallerPtr& caller() const { return caller_; }
  // Before the route: every other request runs first, whatever the body asks.
  void SetLowestPriority() { has_lowest_priority_ = true; }
  bool has_lowest_priority() const { return has_lowest_priority_; }
  const HttpRequest& request() const { return request_; }
  // The body, moved out: by the route, once. Its charge is what counts the
  // bytes; whoever takes the body lets the charge go with it.
  struct Body {
    std::string text;
    std::shared_ptr<void> charge;
  };
  // The bytes once their Content-Encoding is undone, before the route.
  void ReplaceBody(Body body) {
    request_.body = std::move(body.text);
    charge_ = std::move(body.charge);
  }
  Body TakeBody() { return {std::move(request_.body), std::move(charge_)}; }
  // Values of the route's {parameters}.
  const std::vector<std::string>& params() const { return params_; }
  const std::shared_ptr<Trace>& trace() const { return trace_; }
  // Requested when the client is gone.
  std::stop_token stop_token() const { return stop_.get_token(); }

  // For routes. What comes after the end is dropped.
  void Send(HttpResponse response);
  // As Send, of a response that is made when the connection takes it, on its
  // I/O thread: for short work that no thread of its own is worth. False, and
  // `make` is untouched, where the connection is gone or has its answer. `make`
  // is let go of on the I/O thread, too.
  using MakeResponse = std::function<HttpResponse()>;
  bool SendWhenTaken(MakeResponse& make);
  // Bytes written before it wait for it.
  void BeginStream(HttpResponse head);
  void Write(std::string_view bytes);
  void End();
  void EndAndClose();
  void SetModel(std::string model);
  void SetTokens(int64_t prompt_tokens, int64_t completion_tokens);
  // The answer failed after its status line was sent.
  void SetFailure(const Status& status);

  // For the connection. `wake` is called, from any thread and under a lock,
  // when there is something to take; it must be short.
  void SetWake(std::function<void()> wake);
  Output Take();
  Facts facts() const;
  void RequestStop() { stop_.request_stop(); }
  // `wake` is not called any more once this returned.
  void Detach();
  bool detached() const;

 private:
  void Finish(bool close);
  void Wake() REQUIRES(mu_);

  HttpRequest request_;
  std::shared_ptr<void> charge_;  // of its body
  const std::vector<std::string> params_;
  const std::shared_ptr<Trace> trace_;
  const CallerPtr caller_;
  bool has_lowest_priority_ = false;
  std::stop_source stop_;

  mutable Mutex mu_;
  std::function<void()> wake_ GUARDED_BY(mu_);
  bool woken_ GUARDED_BY(mu_) = false;  // since the last Take
  bool begun_ GUARDED_BY(mu_) = false;
  bool ended_ GUARDED_BY(mu_) = false;
  Output output_ GUARDED_BY(mu_);
  MakeResponse make_ GUARDED_BY(mu_);  // makes output_.head
  Facts facts_ GUARDED_BY(mu_);
};

}  // namespace millrace::server::http
