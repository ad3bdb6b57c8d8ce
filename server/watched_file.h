// Files that are read again when they change. Looks at most once a second, when
// asked; nothing runs in between.
//
//   WatchedFile file("keys.yaml", clock);
//   ASSIGN_OR_RETURN(std::string text, file.Read("api_keys_file"));
//   ... if (file.Changed()) text = file.Read("api_keys_file") ...
//
// Not thread-safe: its owner has a lock.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "config/base/clock.h"
#include "config/base/status.h"

namespace millrace::server {

// What changes when a file is replaced or written; equal for one that is not
// there.
struct FileStamp {
  int64_t modified_ns = 0;
  int64_t size = -1;
  uint64_t inode = 0;
  bool operator==(const FileStamp&) const = default;

  static FileStamp Of(const std::string& path);
};

class WatchedFile {
 public:
  static constexpr std::chrono::milliseconds kLookInterval{1000};
  static constexpr size_t kMaxBytes = 16 << 20;

  WatchedFile(std::string path, const Clock* clock)
      : path_(std::move(path)), clock_(clock) {}

  // The whole file; FAILED_PRECONDITION at `setting` when it cannot be read or
  // has more than kMaxBytes.
  StatusOr<std::string> Read(const char* setting);
  // Whether the file is another one than that of the last Read.
  bool Changed();
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const Clock* const clock_;
  FileStamp stamp_;
  Clock::Time next_look_{};
};

}  // namespace millrace::server
