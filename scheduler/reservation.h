// Places at a model, as admission gives them.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

namespace millrace::scheduler {

// Places among running and waiting requests, one unless more were asked for.
// Given back by Submit's ending or by the destructor. Move-only.
class Reservation {
 public:
  Reservation() = default;
  // `release` gives one place back and is called once for each.
  explicit Reservation(std::function<void()> release, int32_t places = 1)
      : release_(std::move(release)), places_(places) {}
  Reservation(Reservation&& other) noexcept
      : release_(std::exchange(other.release_, nullptr)),
        places_(std::exchange(other.places_, 0)) {}
  Reservation& operator=(Reservation&& other) noexcept {
    Release();
    release_ = std::exchange(other.release_, nullptr);
    places_ = std::exchange(other.places_, 0);
    return *this;
  }
  ~Reservation() { Release(); }
  explicit operator bool() const { return places_ > 0; }
  // One place out of those held here; empty when none is left.
  Reservation Split() {
    if (places_ == 0) return {};
    --places_;
    return Reservation(release_);
  }
  void Release() {
    const auto release = std::exchange(release_, nullptr);
    for (; places_ > 0; --places_) release();
  }

 private:
  std::function<void()> release_;
  int32_t places_ = 0;
};

}  // namespace millrace::scheduler
