// Memory that the server and one external handler both map. The server alone
// decides what lies where; the handler writes its answer into the place that
// came with the request. Sealed, so that it cannot shrink under us.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "config/base/status.h"

namespace millrace::handlers {

class SharedSpace {
 public:
  static StatusOr<SharedSpace> Create(size_t bytes);
  ~SharedSpace();
  SharedSpace(SharedSpace&& other) noexcept;
  SharedSpace& operator=(SharedSpace&&) = delete;

  int fd() const { return fd_; }
  size_t size() const { return size_; }
  std::span<std::byte> At(uint64_t offset, size_t bytes) {
    return {memory_ + offset, bytes};
  }

  // An offset aligned to 64 bytes; none where nothing so large is free.
  std::optional<uint64_t> Take(size_t bytes);
  void GiveBack(uint64_t offset);

 private:
  SharedSpace(int fd, std::byte* memory, size_t size)
      : fd_(fd), memory_(memory), size_(size) {}

  int fd_ = -1;
  std::byte* memory_ = nullptr;
  size_t size_ = 0;
  std::map<uint64_t, size_t> taken_;  // offset → bytes
};

}  // namespace millrace::handlers
