#include "server/watched_file.h"

#include <sys/stat.h>

#include "config/base/read_file.h"

namespace millrace::server {

FileStamp FileStamp::Of(const std::string& path) {
  struct stat info {};
  if (path.empty() || stat(path.c_str(), &info) != 0) return {};
  return {int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec,
          info.st_size, info.st_ino};
}

StatusOr<std::string> WatchedFile::Read(const char* setting) {
  // Before the read: what changes meanwhile is seen by the next look.
  stamp_ = FileStamp::Of(path_);
  next_look_ = clock_->Now() + kLookInterval;
  return ReadFileOf(setting, path_, kMaxBytes);
}

bool WatchedFile::Changed() {
  const Clock::Time now = clock_->Now();
  if (now < next_look_) return false;
  next_look_ = now + kLookInterval;
  return FileStamp::Of(path_) != stamp_;
}

}  // namespace millrace::server
