// The unfinished file of a download: bytes on disk, their running SHA-256, and
// the version of the remote file that they are of (PATH.part.version).
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "config/base/status.h"
#include "server/pull/digest.h"

namespace millrace::server {

class PartFile {
 public:
  explicit PartFile(const std::filesystem::path& path);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  // Opens what an earlier try left and reads it for the checksum.
  Status Open();
  int64_t size() const { return size_; }
  const std::string& version() const { return version_; }

  // Drops all bytes; those that follow are of this version.
  Status Restart(const std::string& version);
  // RESOURCE_EXHAUSTED when the disk is full.
  Status Append(std::string_view bytes);
  // On disk; the checksum of all bytes. Once, at the end.
  StatusOr<std::string> Finish();
  // Removes it.
  void Remove();
  const std::filesystem::path& path() const { return path_; }

 private:
  Status Failed(std::string_view what, int error) const;

  std::filesystem::path path_;
  std::filesystem::path version_path_;
  int file_ = -1;
  int64_t size_ = 0;
  std::string version_;
  Digester digester_;
};

}  // namespace millrace::server
