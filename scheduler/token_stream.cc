// A vector behind a lock, and one wake-up for each time it fills. The wake
// function is dropped at the end: it usually owns the request that owns this
// stream, and the two would keep each other alive.
#include "scheduler/token_stream.h"

#include <utility>

namespace millrace::scheduler {

TokenStream::Taken TokenStream::Take() {
  Taken taken;
  MutexLock lock(mu_);
  std::swap(taken, pending_);
  woken_ = false;
  return taken;
}

void TokenStream::OnReady(std::function<void()> wake) {
  std::function<void()> now;
  std::function<void()> before;  // dies outside the lock
  {
    MutexLock lock(mu_);
    const bool something = !pending_.prompt.empty() ||
                           !pending_.progress.empty() ||
                           !pending_.tokens.empty() || pending_.end.has_value();
    before = std::exchange(wake_, nullptr);
    woken_ = something;
    if (something) now = wake;
    if (!ended_) wake_ = std::move(wake);
  }
  if (now) now();
}

void TokenStream::PushPrompt(TokenEvent event) {
  std::function<void()> wake;
  {
    MutexLock lock(mu_);
    CHECK(!ended_, "a prompt token came after the end");
    pending_.prompt.push_back(std::move(event));
    wake = WakeOnce();
  }
  if (wake) wake();
}

void TokenStream::PushProgress(const PromptProgress& progress) {
  std::function<void()> wake;
  {
    MutexLock lock(mu_);
    CHECK(!ended_, "a prompt's progress came after the end");
    pending_.progress.push_back(progress);
    wake = WakeOnce();
  }
  if (wake) wake();
}

void TokenStream::Push(TokenEvent event) {
  std::function<void()> wake;
  {
    MutexLock lock(mu_);
    CHECK(!ended_, "a token came after the end");
    pending_.tokens.push_back(std::move(event));
    wake = WakeOnce();
  }
  if (wake) wake();
}

void TokenStream::Finish(StreamEnd end) {
  std::function<void()> wake;
  std::function<void()> last;  // dies outside the lock
  {
    MutexLock lock(mu_);
    CHECK(!ended_, "a stream has one end");
    pending_.end = std::move(end);
    ended_ = true;
    wake = WakeOnce();
    last = std::exchange(wake_, nullptr);
  }
  if (wake) wake();
}

std::function<void()> TokenStream::WakeOnce() {
  if (woken_ || !wake_) return nullptr;
  woken_ = true;
  return wake_;
}

}  // namespace millrace::scheduler
