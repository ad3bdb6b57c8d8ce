// Files that survive a kill: written beside and renamed, or appended line by
// line, where a line that was cut off is found by its missing end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "config/base/status.h"

namespace millrace::server {

// The file has either its old bytes or all of the new ones, also after a power
// cut. RESOURCE_EXHAUSTED when the disk is full.
Status WriteDurably(const std::string& path, std::string_view bytes);
StatusOr<std::string> ReadBytes(const std::string& path);
bool FileExists(const std::string& path);
// Durable, too. Replaces what is there.
Status RenameDurably(const std::string& from, const std::string& to);

// Lines are in the file, for every later process, once Append returned.
// Movable; not thread-safe.
class AppendFile {
 public:
  // Made if it is not there; bytes behind `keep` are cut off.
  static StatusOr<AppendFile> Open(const std::string& path, int64_t keep);
  AppendFile(AppendFile&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), bytes_(other.bytes_) {}
  AppendFile& operator=(AppendFile&&) = delete;
  ~AppendFile();

  // A failure leaves the file as it was.
  Status Append(std::string_view line);
  // Waits until the disk has it.
  Status Sync();
  int64_t bytes() const { return bytes_; }

 private:
  AppendFile(int fd, int64_t bytes) : fd_(fd), bytes_(bytes) {}
  int fd_;
  int64_t bytes_;
};

}  // namespace millrace::server
