// The outgoing bytes between the threads that make a response and its
// connection. A write wakes the connection only when no wake is pending: one
// stands until the connection has taken everything, so a fast response costs
// few of them.
#include "server/http/exchange.h"

#include <utility>

#include "server/http/compressed.h"

namespace millrace::server::http {

Exchange::Exchange(HttpRequest request, std::vector<std::string> params,
                   std::shared_ptr<Trace> trace,
                   std::shared_ptr<void> body_charge, CallerPtr caller)
    : request_(std::move(request)),
      charge_(std::move(body_charge)),
      params_(std::move(params)),
      trace_(std::move(trace)),
      caller_(std::move(caller)) {}

void Exchange::SetWake(std::function<void()> wake) {
  MutexLock lock(mu_);
  wake_ = std::move(wake);
}

void Exchange::Send(HttpResponse response) {
  // On the thread that made it, not on the connection's.
  CompressJson(request_, response);
  MutexLock lock(mu_);
  if (begun_ || ended_) return;
  begun_ = ended_ = true;
  output_.head = std::move(response);
  output_.whole = true;
  output_.bytes.clear();
  output_.ended = true;
  Wake();
}

bool Exchange::SendWhenTaken(MakeResponse& make) {
  MutexLock lock(mu_);
  if (begun_ || ended_ || !wake_) return false;
  begun_ = ended_ = true;
  make_ = std::move(make);
  output_.whole = true;
  output_.bytes.clear();
  output_.ended = true;
  Wake();
  return true;
}

void Exchange::BeginStream(HttpResponse head) {
  MutexLock lock(mu_);
  if (begun_ || ended_) return;
  begun_ = true;
  output_.head = std::move(head);
  Wake();
}

void Exchange::Write(std::string_view bytes) {
  MutexLock lock(mu_);
  if (ended_) return;
  output_.bytes.append(bytes);
  if (begun_) Wake();
}

void Exchange::End() { Finish(false); }
void Exchange::EndAndClose() { Finish(true); }

void Exchange::Finish(bool close) {
  MutexLock lock(mu_);
  if (ended_) return;
  if (!begun_) {
    output_.head = ErrorResponse(Internal("the request ended without answer"));
    output_.whole = true;
    output_.bytes.clear();
  }
  ended_ = true;
  output_.ended = true;
  output_.close = close;
  Wake();
}

void Exchange::SetModel(std::string model) {
  MutexLock lock(mu_);
  facts_.model = std::move(model);
}

void Exchange::SetTokens(int64_t prompt_tokens, int64_t completion_tokens) {
  MutexLock lock(mu_);
  facts_.prompt_tokens = prompt_tokens;
  facts_.completion_tokens = completion_tokens;
}

void Exchange::SetFailure(const Status& status) {
  MutexLock lock(mu_);
  facts_.error = status;
  facts_.failed_late = true;
}

Exchange::Output Exchange::Take() {
  MakeResponse make;
  Output taken;
  {
    MutexLock lock(mu_);
    woken_ = false;
    if (!begun_ && !ended_) return {};
    make = std::exchange(make_, nullptr);
    taken = std::move(output_);
    output_ = {};
    output_.ended = taken.ended;
    output_.close = taken.close;
  }
  if (make) taken.head = make();
  return taken;
}

Exchange::Facts Exchange::facts() const {
  MutexLock lock(mu_);
  return facts_;
}

void Exchange::Detach() {
  MakeResponse unwanted;  // let go of outside the lock
  MutexLock lock(mu_);
  unwanted = std::exchange(make_, nullptr);
  wake_ = nullptr;
}

bool Exchange::detached() const {
  MutexLock lock(mu_);
  return wake_ == nullptr;
}

void Exchange::Wake() {
  if (woken_ || !wake_) return;
  woken_ = true;
  wake_();
}

}  // namespace millrace::server::http
