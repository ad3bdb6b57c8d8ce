// Work counts under one mutex: a gate is entered once for each request, so a
// lock of a few nanoseconds is not seen, and Close can never miss a late entry.
#include "config/base/gate.h"

#include "config/base/status.h"

namespace millrace {

Gate::Pass& Gate::Pass::operator=(Pass&& other) noexcept {
  if (this != &other) {
    Pass leaving(std::move(*this));
    gate_ = other.gate_;
    other.gate_ = nullptr;
  }
  return *this;
}

Gate::Pass::~Pass() {
  if (gate_ == nullptr) return;
  MutexLock lock(gate_->mu_);
  CHECK(gate_->in_flight_ > 0, "each pass leaves once");
  // Notified under the lock: the waiter may destroy the gate right after it
  // sees zero.
  if (--gate_->in_flight_ == 0) gate_->changed_.NotifyAll();
}

Gate::Pass Gate::Enter() {
  MutexLock lock(mu_);
  if (closed_) return Pass();
  ++in_flight_;
  return Pass(this);
}

void Gate::Close() {
  MutexLock lock(mu_);
  closed_ = true;
}

bool Gate::closed() const {
  MutexLock lock(mu_);
  return closed_;
}

int64_t Gate::in_flight() const {
  MutexLock lock(mu_);
  return in_flight_;
}

bool Gate::WaitEmpty(std::chrono::steady_clock::time_point deadline) {
  MutexLock lock(mu_);
  while (in_flight_ > 0) {
    if (!changed_.WaitUntil(mu_, deadline)) return in_flight_ == 0;
  }
  return true;
}

}  // namespace millrace
