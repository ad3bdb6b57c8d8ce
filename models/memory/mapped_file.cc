// mmap with an owner. The surprise to know: a file that another process cuts
// short while it is mapped raises SIGBUS on access. A load survives that by its
// TruncationGuard, a served graph, whose constants may stay in the mapping, by
// the cover that it keeps. Other weights are copied out of it at load.
#include "models/memory/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "models/memory/truncation_guard.h"

namespace millrace::models {
namespace {

Status OpenError(const std::string& path, int error) {
  const std::string why = std::strerror(error);
  if (error == ENOENT) {
    return NotFound("there is no file '" + path + "'");
  }
  if (error == EACCES || error == EPERM) {
    return Status(StatusCode::kPermissionDenied,
                  "'" + path + "' may not be read: " + why);
  }
  if (error == EMFILE || error == ENFILE) {
    return ResourceExhausted("'" + path + "' cannot be opened: " + why +
                             "; raise the limit (ulimit -n)");
  }
  return InvalidArgument("'" + path + "' cannot be opened: " + why);
}

// Of the whole pages inside the bytes. A failure costs memory or time, nothing
// else.
void Advise(std::span<const std::byte> bytes, int advice) {
  if (bytes.empty()) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t begin = (first + page - 1) / page * page;
  const uintptr_t end = (first + bytes.size()) / page * page;
  if (begin >= end) return;
  (void)::madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

}  // namespace

void WillReadAtRandom(std::span<const std::byte> bytes) {
  Advise(bytes, MADV_RANDOM);
}

StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return OpenError(path, errno);
  struct stat info;
  if (::fstat(fd, &info) != 0) {
    const int error = errno;
    ::close(fd);
    return OpenError(path, error);
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return InvalidArgument("'" + path + "' is not a regular file");
  }
  MappedFile file;
  file.size_ = static_cast<size_t>(info.st_size);
  if (file.size_ > 0) {
    void* data = ::mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      const int error = errno;
      ::close(fd);
      file.size_ = 0;
      return ResourceExhausted(
          "'" + path + "' (" + std::to_string(info.st_size) +
          " bytes) cannot be mapped into memory: " + std::strerror(error));
    }
    file.data_ = static_cast<const std::byte*>(data);
    TruncationGuard::AddMapping(file.bytes());
  }
  ::close(fd);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  TruncationGuard::RemoveMapping(bytes());
  ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::DropPages(std::span<const std::byte> bytes) const {
  Advise(bytes, MADV_DONTNEED);
}

void MappedFile::WillRead() const {
  if (data_ == nullptr) return;
  (void)::madvise(const_cast<std::byte*>(data_), size_, MADV_SEQUENTIAL);
  (void)::madvise(const_cast<std::byte*>(data_), size_, MADV_WILLNEED);
}

}  // namespace millrace::models
