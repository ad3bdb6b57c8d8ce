// Files of clients in a folder: what POST /v1/files brings and what batches
// write. Each is ID.jsonl with its bytes and ID.json with its metadata; a
// file without the second one does not exist yet, or any more. Only the tenant
// that made a file sees it.
//
//   ASSIGN_OR_RETURN(auto store, FileStore::Open(dir, max_bytes));
//   ASSIGN_OR_RETURN(StoredFile file, store->Add({.filename = "in.jsonl",
//       .purpose = "batch", .tenant = "default", .created_at = now}, bytes));
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/mutex.h"
#include "config/base/status.h"

namespace millrace::server {

struct StoredFile {
  std::string id = {};  // "file-…", given by the store
  std::string filename = {};
  std::string purpose = {};
  std::string tenant = {};
  int64_t bytes = 0;
  int64_t created_at = 0;  // unix seconds
  std::optional<int64_t> expires_at = {};
  int64_t number = 0;  // the order in which they were made
};

// "file-" or "batch_" and random digits.
std::string NewId(std::string_view prefix);

class FileStore {
 public:
  static constexpr size_t kMostFiles = 10'000;

  // `dir` exists. Files that were cut off by a kill are removed, but for those
  // whose ids are in `expected`.
  static StatusOr<std::unique_ptr<FileStore>> Open(
      const std::string& dir, int64_t max_bytes,
      const std::set<std::string>& expected);

  // RESOURCE_EXHAUSTED when the folder, its disk or the list is full.
  StatusOr<StoredFile> Add(StoredFile about, std::string_view bytes);
  // Makes a file of `path`, which is renamed. The id is the caller's. Its bytes
  // are counted from then on, whatever the limit, unless they are `counted`
  // already. An empty one is removed; does nothing when there is none, or when
  // it was done before.
  Status Adopt(StoredFile about, const std::string& path, bool counted);
  StatusOr<StoredFile> Find(std::string_view id, std::string_view tenant) const;
  StatusOr<StoredFile> Remove(std::string_view id, std::string_view tenant);
  // The newest first; of any purpose when that is empty.
  std::vector<StoredFile> List(std::string_view tenant,
                               std::string_view purpose) const;
  // Those whose time is over, of all tenants.
  std::vector<StoredFile> Expired(int64_t now) const;

  std::string PathOf(std::string_view id) const;
  StatusOr<std::string> Read(std::string_view id) const;

  // Counts bytes before they are written. RESOURCE_EXHAUSTED names the limit.
  Status Charge(int64_t bytes);
  void Refund(int64_t bytes);

 private:
  FileStore(std::string dir, int64_t max_bytes)
      : dir_(std::move(dir)), max_bytes_(max_bytes) {}
  Status Load(const std::set<std::string>& expected);
  std::string AboutPathOf(std::string_view id) const;
  Status Write(StoredFile& about);

  const std::string dir_;
  const int64_t max_bytes_;
  std::atomic<int64_t> used_bytes_ = 0;  // relaxed: only a bound
  mutable Mutex mu_;
  std::map<std::string, StoredFile, std::less<>> files_ GUARDED_BY(mu_);
  int64_t last_number_ GUARDED_BY(mu_) = 0;
};

}  // namespace millrace::server
