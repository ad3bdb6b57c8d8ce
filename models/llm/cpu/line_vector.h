// LineVector: a std::vector whose first element is aligned to a cache line of
// 64 bytes, so that vectors and tiles of rows a multiple of 64 bytes apart do
// not cross lines.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace millrace::models {

template <typename T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};

  LineAllocator() = default;
  template <typename U>
  LineAllocator(const LineAllocator<U>&) {}

  T* allocate(size_t n) {
    return static_cast<T*>(::operator new(n * sizeof(T), kLine));
  }
  void deallocate(T* p, size_t) { ::operator delete(p, kLine); }

  friend bool operator==(LineAllocator, LineAllocator) { return true; }
};

template <typename T>
using LineVector = std::vector<T, LineAllocator<T>>;

}  // namespace millrace::models
