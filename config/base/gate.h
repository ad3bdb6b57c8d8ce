// A gate counts work in flight, closes, and waits for zero: how a model unloads
// and a server drains.
//
//   Gate::Pass pass = gate.Enter();
//   if (!pass) return Unavailable("model is being unloaded");
//   ... the pass leaves by its destructor ...
//
// Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>

#include "config/base/mutex.h"

namespace millrace {

class Gate {
 public:
  class [[nodiscard]] Pass {
   public:
    Pass() = default;
    Pass(Pass&& other) noexcept : gate_(other.gate_) { other.gate_ = nullptr; }
    Pass& operator=(Pass&& other) noexcept;
    ~Pass();
    explicit operator bool() const { return gate_ != nullptr; }

   private:
    friend class Gate;
    explicit Pass(Gate* gate) : gate_(gate) {}
    Gate* gate_ = nullptr;
  };

  // Empty once closed.
  Pass Enter();
  void Close();
  bool closed() const;
  int64_t in_flight() const;
  // True when the count reached zero, false when the time ran out.
  bool WaitEmpty(std::chrono::steady_clock::time_point deadline);

 private:
  mutable Mutex mu_;
  CondVar changed_;
  bool closed_ GUARDED_BY(mu_) = false;
  int64_t in_flight_ GUARDED_BY(mu_) = 0;
};

}  // namespace millrace
