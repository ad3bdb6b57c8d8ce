// A ZIP archive of TorchServe (.mar, .war) as a folder of files. Nothing in it
// is trusted: no name leads out of the folder, and what would grow too large is
// refused before it is written.
//
//   ASSIGN_OR_RETURN(auto folder, UnpackedFolder::Of(path, kManifest, …));
//   ... folder->path() + "/index_to_name.json" ...
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"

namespace millrace::server::torchserve {

struct UnpackLimits {
  int64_t max_entries = 10'000;
  int64_t max_bytes = int64_t{16} << 30;  // unpacked
  // Of one entry's size, unpacked to packed; larger ones may be bombs.
  int64_t max_ratio = 200;
};

// Lies in TMPDIR and leaves with the object. Immutable; thread-safe.
class UnpackedFolder {
 public:
  // Entries that `stays_packed` takes are listed and not written. `manifest` is
  // the entry that every such archive has, `archiver` the program that makes
  // it. NOT_FOUND, INVALID_ARGUMENT (no such archive), RESOURCE_EXHAUSTED
  // (above the limits, or no space), FAILED_PRECONDITION (no folder).
  static StatusOr<std::unique_ptr<const UnpackedFolder>> Of(
      const std::string& path, std::string_view manifest,
      std::string_view archiver, const UnpackLimits& limits,
      const std::function<bool(std::string_view name)>& stays_packed);
  ~UnpackedFolder();
  UnpackedFolder(const UnpackedFolder&) = delete;
  UnpackedFolder& operator=(const UnpackedFolder&) = delete;

  const std::string& path() const { return path_; }
  // The files leave now, from under those that still use them: at the end of
  // the process.
  void RemoveFiles() const;
  // Names of all files of the archive, of those left packed, too.
  const std::vector<std::string>& files() const { return files_; }

 private:
  UnpackedFolder() = default;

  std::string path_;  // empty: there is none yet
  std::vector<std::string> files_;
};

// A new folder in TMPDIR. FAILED_PRECONDITION.
StatusOr<std::string> MakeArchiveFolder();

// A text of an archive, 1 MiB at most. INVALID_ARGUMENT.
StatusOr<std::string> ReadTextFile(const std::filesystem::path& path);

}  // namespace millrace::server::torchserve
