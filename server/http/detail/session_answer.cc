// A session's answers: the head of each, the bytes as they come, and what is
// told of the request afterwards. While a client is slow, what its request
// makes gathers in the exchange and goes out as one piece: there is no buffer
// for each token.
//
// No co_await stands in the condition of an if or while, see session.cc.
#include <chrono>
#include <string>
#include <utility>

#include "server/error_map.h"
#include "server/http/detail/session.h"
#include "server/request_id.h"
#include "server/torchserve/registry.h"

namespace millrace::server::http {
namespace {

int64_t UnixNow() {
  return std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
}

}  // namespace

void Session::BeginRequest() {
  asked_ = true;
  trace_ = std::make_shared<Trace>();
  accepted_ = site_.services.clock->Now();
  trace_->Stamp(Stage::kAccepted, accepted_);
  match_ = RouteMatch();
  access_ = Access::kAnyKey;
  caller_.reset();
  permit_ = Permit();
  method_.clear();
  path_.clear();
  http10_ = false;
  status_ = 0;
  body_bytes_ = 0;
}

void Session::AddHeaders(HttpResponse& response) const {
  AddCommonHeaders(site_, *trace_, response);
  if (caller_ != nullptr && access_ == Access::kInfer) {
    AddQuotaHeaders(*caller_->tenant, response);
  }
}

// Management calls that may change something, refused ones too; and of
// TorchServe the one that makes a new key.
void Session::Audit(int result, const Exchange::Facts* facts) const {
  AuditLog* const audit = site_.services.audit;
  if (audit == nullptr || match_.route == nullptr) return;
  const bool changes =
      access_ == Access::kManage && match_.route->method != "GET";
  if (!changes && match_.route->pattern != "/token") return;
  const std::string action = method_ + " " + path_;
  const std::string told = std::to_string(result);
  audit->Write({.caller = caller_.get(),
                .peer = conn_->peer(),
                .action = action,
                .model = {},
                .result = told,
                .request_id = trace_->request_id,
                .error = facts == nullptr ? std::string_view()
                                          : facts->error.message()});
}

void Session::EndRequest(Outcome outcome, int result,
                         const Exchange::Facts* facts) {
  const Exchange::Facts no_facts;
  if (facts != nullptr && facts->prompt_tokens >= 0) {
    permit_.Spend(facts->prompt_tokens +
                  std::max<int64_t>(facts->completion_tokens, 0));
  }
  permit_ = Permit();
  Audit(result, facts);
  trace_->Stamp(Stage::kEnded, site_.services.clock->Now());
  const torchserve::Registry* const registry = site_.services.torchserve;
  if (registry != nullptr && registry->metric_log() != nullptr &&
      status_ != 0) {
    registry->metric_log()->Responded(status_);
  }
  site_.observer.RequestEnded(
      {.pattern = match_.route != nullptr ? match_.route->pattern : "",
       .method = method_,
       .path = path_,
       .peer = conn_->peer(),
       .caller = caller_.get(),
       .status = status_,
       .body_bytes = body_bytes_,
       .outcome = outcome,
       .facts = facts != nullptr ? facts : &no_facts,
       .trace = trace_.get()});
}

Session::Task<bool> Session::AnswerEarly(HttpResponse& response,
                                         bool keep_alive) {
  if (trace_->request_id.empty()) trace_->request_id = RequestIdFrom({});
  keep_alive = keep_alive && !leaving();
  status_ = response.status;
  Exchange::Facts facts;
  facts.error = response.error;
  // Set where the model refused. A client that was refused before, such as one
  // without a key, may have named a model that does not exist.
  if ((status_ == 429 || status_ >= 500) && match_.route != nullptr &&
      match_.route->guard != nullptr && !match_.params.empty()) {
    facts.model = match_.params[0];
  }
  AddHeaders(response);
  const bool no_body = response.status == 204;
  std::string text =
      RenderHead(response, no_body ? Framing::kNoBody : Framing::kContentLength,
                 keep_alive, UnixNow());
  if (method_ != "HEAD" && !no_body) {
    text += response.body;
    body_bytes_ = static_cast<int64_t>(response.body.size());
  }
  const bool sent = co_await WriteAll(text, false);
  trace_->Stamp(Stage::kFirstByte, site_.services.clock->Now());
  EndRequest(sent ? OutcomeOfHttpStatus(status_) : Outcome::kCancelled, status_,
             &facts);
  linger_ = sent && !keep_alive;
  co_return sent&& keep_alive;
}

Session::Task<bool> Session::AnswerFrom(std::shared_ptr<Exchange> exchange,
                                        bool keep_alive) {
  Framing framing = Framing::kContentLength;
  bool gone = false;
  bool ended = false;
  int result = 0;  // of the route
  Status error;
  while (!ended && !(gone && aborted_)) {
    Exchange::Output output = exchange->Take();
    ended = output.ended;
    const bool took = output.head.has_value() || !output.bytes.empty();
    std::string text;
    // The audit log tells the result also when the client is gone.
    if (output.head.has_value()) {
      result = output.head->status;
      error = output.head->error;
    }
    if (output.head.has_value() && !gone) {
      HttpResponse& head = *output.head;
      status_ = head.status;
      keep_alive = keep_alive && !leaving();
      framing = output.whole ? Framing::kContentLength
                : http10_    ? Framing::kUntilClose
                             : Framing::kChunked;
      if (framing == Framing::kUntilClose) keep_alive = false;
      if (head.status == 204) framing = Framing::kNoBody;
      AddHeaders(head);
      text = RenderHead(head, framing, keep_alive, UnixNow());
      if (output.whole && framing != Framing::kNoBody) {
        output.bytes = std::move(head.body);
      }
    }
    if (method_ != "HEAD") {
      body_bytes_ += gone ? 0 : static_cast<int64_t>(output.bytes.size());
      const bool chunked = framing == Framing::kChunked;
      text += chunked ? RenderChunk(output.bytes) : output.bytes;
      // Events tell of a failure themselves. Bytes of a handler cannot: without
      // the last chunk the client sees that they are not whole.
      const bool cut = output.close && site_.services.torchserve != nullptr &&
                       exchange->facts().failed_late;
      if (chunked && ended && status_ != 0 && !cut) text += kLastChunk;
    }
    if (output.close) keep_alive = false;
    if (!gone && !text.empty()) {
      const bool sent = co_await WriteAll(text, !ended);
      gone = !sent;
      if (sent) {
        trace_->Stamp(Stage::kFirstByte, site_.services.clock->Now());
      }
    }
    if (ended) break;
    if (!gone && (input_ended_ || broken_)) gone = true;
    if (gone) {
      // The route still owes its end, which the stop brings about soon.
      exchange->RequestStop();
      broken_ = true;
      conn_->Close();
    } else {
      StartRead();
    }
    if (gone && aborted_) break;
    // What was written while a write was under way rang then: look again
    // before waiting.
    if (!took) co_await Wait(kNoDeadline);
  }
  Exchange::Facts facts = exchange->facts();
  Outcome outcome = OutcomeOfHttpStatus(
      facts.failed_late ? HttpStatusOf(facts.error) : status_);
  if (!facts.failed_late) facts.error = std::move(error);
  if (gone) {
    outcome = write_timed_out_ ? Outcome::kTimeout : Outcome::kCancelled;
  }
  EndRequest(outcome, result, &facts);
  linger_ = !gone && !keep_alive;
  co_return !gone && keep_alive;
}

Session::Task<bool> Session::WriteAll(std::string_view bytes,
                                      bool stop_at_end_of_input) {
  while (!bytes.empty()) {
    if (broken_) co_return false;
    ptrdiff_t n = conn_->TryWrite(bytes);
    if (n == 0) {
      // The peer's window is full. Keep reading meanwhile: an end or a reset
      // is how we learn that it left.
      writing_ = true;
      conn_->Write(bytes, [this](ptrdiff_t written) {
        writing_ = false;
        written_ = written;
        Ring();
      });
      const Time deadline = After(site_.settings.write_timeout_ms);
      while (writing_) {
        StartRead();
        const bool rung = co_await Wait(deadline);
        if (!writing_) break;
        if (rung && !broken_ && !(stop_at_end_of_input && input_ended_)) {
          continue;
        }
        write_timed_out_ = !rung;
        broken_ = true;
        conn_->Close();
        while (writing_) co_await Wait(kNoDeadline);
        co_return false;
      }
      n = written_;
    }
    if (n < 0) {
      broken_ = true;
      co_return false;
    }
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  co_return true;
}

}  // namespace millrace::server::http
