// The folder of one model's KV pages: a file for each page.
//
//   DIR/kv-FINGERPRINT/KEY.page    header (magic, key, SHA-256), then the bytes
//   DIR/digest-…                   digests of a model's files
//                                  (kv_fingerprint.h)
//
// A file is written beside its name and renamed, so that what is there is
// whole; what a crash of the machine or a bad disk makes of it is found by its
// checksum. Nothing is flushed to the disk: the files are a cache.
//
// Files are readable by their owner only: they tell what prompts said.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/llm/page_store.h"

namespace millrace::models {

// Makes the folder of all models' pages, for its owner alone, if it is not
// there. INVALID_ARGUMENT at kv_cache_dir.
Status MakePageFolder(const std::string& dir);

// Files only, no index. Thread-safe; two threads may write the same page.
class PageFolder {
 public:
  using Bytes = PageStore::Bytes;

  // `dir` is there, see MakePageFolder; `fingerprint` is hexadecimal digits,
  // see kv_fingerprint.h.
  PageFolder(std::string dir, const std::string& fingerprint,
             int64_t page_bytes);

  // Makes the folder and gives its pages, the least recently used first.
  // Folders of other fingerprints that were not used for 30 days are removed; a
  // folder is used when a model begins with it, and when pages are written or
  // read.
  // INVALID_ARGUMENT at kv_cache_dir: the folder cannot be used.
  StatusOr<std::vector<PageKey>> Find() const;

  // 0, or the errno that says why it could not be written; then nothing is
  // left of it. Makes the folder again if it is gone.
  int Write(const PageKey& key, const Bytes& bytes) const;

  struct Found {
    std::optional<Bytes> bytes;  // nothing: not there, or damaged
    bool is_damaged = false;     // and removed
  };
  // The file counts as used now, and within an hour the folder does.
  Found Read(const PageKey& key) const;

  void Remove(const PageKey& key) const;

  std::string PathOf(const PageKey& key) const;
  // Of one page with its header.
  int64_t file_bytes() const;

 private:
  int WriteOnce(const PageKey& key, const Bytes& bytes) const;
  void Touch() const;

  const std::string dir_;
  const std::string folder_;
  const int64_t page_bytes_;
  // When the folder's time was set by a read, of the steady clock; -1: never.
  // relaxed: nothing else depends on it.
  mutable std::atomic<int64_t> touched_s_{-1};
};

}  // namespace millrace::models
