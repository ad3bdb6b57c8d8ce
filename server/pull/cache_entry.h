// Where one address stands in the cache:
//
//   models/pulled/KEY/lock       held while a process pulls
//   models/pulled/KEY/partial/   downloads that are not whole
//   models/pulled/KEY/VERSION/   what was pulled, named by commit or checksum
//   models/pulled/KEY/current    link to the file or folder to serve
//
// A reader needs the link alone, so the cache may stand on a read-only volume.
// VERSION/ appears by a rename and the link is replaced by a rename: what it
// leads to is always whole. Older versions stay until they are removed by hand.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "config/base/status.h"

namespace millrace::server {

// ${MILLRACE_CACHE:-${XDG_CACHE_HOME:-~/.cache}/millrace}
std::filesystem::path CacheFolder();

class CacheEntry {
 public:
  CacheEntry(const std::filesystem::path& cache, const std::string& key);
  ~CacheEntry();  // unlocks
  CacheEntry(const CacheEntry&) = delete;
  CacheEntry& operator=(const CacheEntry&) = delete;

  // What `current` leads to; empty: nothing was pulled.
  std::filesystem::path Current() const;
  std::string CurrentVersion() const;

  // Waits for another process; `on_wait` is called once if there is one.
  Status Lock(const std::function<void()>& on_wait);

  // The rest needs the lock.
  // A folder for unfinished files of one version; other versions' are removed.
  StatusOr<std::filesystem::path> Partial(const std::string& version);
  // Where a version stands, or would.
  std::filesystem::path Version(const std::string& version) const;
  // Makes the partial folder VERSION/, and `current` lead to `inner` in it.
  // A VERSION/ that is there already stays if it has `inner` and `is_right`;
  // the partial folder takes its place if not.
  Status Place(const std::filesystem::path& partial, const std::string& version,
               const std::filesystem::path& inner, bool is_right);

 private:
  std::filesystem::path folder_;
  int lock_ = -1;
};

}  // namespace millrace::server
