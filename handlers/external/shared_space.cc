#include "handlers/external/shared_space.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace millrace::handlers {
namespace {

constexpr size_t kAlignment = 64;

Status SystemError(const char* what) {
  return Internal(std::string(what) + " failed: " + std::strerror(errno));
}

}  // namespace

StatusOr<SharedSpace> SharedSpace::Create(size_t bytes) {
  const int fd =
      ::memfd_create("millrace-handler", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return SystemError("memfd_create");
  SharedSpace space(fd, nullptr, bytes);
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    return SystemError("making shared memory for a handler");
  }
  if (::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) !=
      0) {
    return SystemError("sealing shared memory");
  }
  void* memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return SystemError("mapping shared memory");
  space.memory_ = static_cast<std::byte*>(memory);
  return space;
}

SharedSpace::~SharedSpace() {
  if (memory_ != nullptr) ::munmap(memory_, size_);
  if (fd_ >= 0) ::close(fd_);
}

SharedSpace::SharedSpace(SharedSpace&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      memory_(std::exchange(other.memory_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      taken_(std::move(other.taken_)) {}

std::optional<uint64_t> SharedSpace::Take(size_t bytes) {
  if (bytes > size_) return std::nullopt;
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  uint64_t begin = 0;  // of the gap before each piece
  for (const auto& [offset, taken] : taken_) {
    if (offset - begin >= bytes) break;
    begin = offset + taken;
  }
  if (begin > size_ || size_ - begin < bytes) return std::nullopt;
  taken_[begin] = bytes;
  return begin;
}

void SharedSpace::GiveBack(uint64_t offset) { taken_.erase(offset); }

}  // namespace millrace::handlers
