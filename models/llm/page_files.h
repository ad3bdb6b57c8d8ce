// A PageStore in a folder, which a later process finds again, also after a
// kill: the index of its pages and the thread that reads and writes them. What
// the files hold is page_folder.h.
//
// Pages of one fingerprint are bounded: the least recently used make room.
// Their order survives a restart by the files' times. A damaged file is counted
// and computed again. Several servers may use a folder: each sees the pages
// that were there when it started and its own, and counts those to its bound.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "config/base/metrics.h"
#include "config/base/mutex.h"
#include "config/base/status.h"
#include "models/llm/page_folder.h"
#include "models/llm/page_store.h"

namespace millrace::models {

struct PageFilesOptions {
  std::string dir;          // is there, see MakePageFolder
  std::string fingerprint;  // hexadecimal digits, see kv_fingerprint.h
  int64_t page_bytes = 0;
  int64_t max_bytes = 0;   // of all files of the fingerprint
  std::string model = "";  // label of metrics and log lines
};

// Thread-safe, although one thread uses it.
class PageFiles final : public PageStore {
 public:
  // INVALID_ARGUMENT at kv_cache_dir or kv_cache_dir_max_size: the folder
  // cannot be used, or holds no page. `registry` may be null.
  static StatusOr<std::unique_ptr<PageFiles>> Open(
      const PageFilesOptions& options, MetricRegistry* registry);
  // Writes what still waits to be.
  ~PageFiles() override;

  PageKey KeyOf(const PageKey* before,
                std::span<const int32_t> ids) const override;
  bool Holds(const PageKey& key) const override;
  void Used(std::span<const PageKey> keys) override;
  std::optional<Bytes> TakeBuffer() override;
  void Keep(const PageKey& key, Bytes bytes) override;
  int32_t max_fetch() const override { return max_buffers_; }
  void Fetch(uint64_t ticket, std::vector<PageKey> keys) override;
  std::vector<Fetched> TakeFetched() override;
  double fetch_seconds() const override;
  void OnNews(std::function<void()> news) override { news_ = std::move(news); }

  int64_t num_pages() const;

 private:
  struct Metrics {
    Counter stored, restored, damaged, evicted, failed;
    Gauge bytes;
  };
  struct Entry {
    std::list<PageKey>::iterator place;  // in by_use_
  };
  struct Write {
    PageKey key;
    Bytes bytes;
  };
  struct Read {
    uint64_t ticket;
    std::vector<PageKey> keys;
  };

  explicit PageFiles(const PageFilesOptions& options);
  Status FindPages();
  void AddMetrics(MetricRegistry& registry);

  // The thread.
  void Run();
  void DoWrite(Write write);
  void WritePage(const Write& write);
  void DoRead(Read read);
  // Nothing: it is not there, or damaged, and then removed.
  std::optional<Bytes> ReadPage(const PageKey& key);
  void Drop(const PageKey& key);
  void MakeRoom();

  const PageFilesOptions options_;
  const PageFolder folder_;
  const int32_t max_buffers_;
  std::function<void()> news_ = [] {};
  Metrics metrics_;
  int64_t last_warning_s_ = -1000;  // the thread's

  mutable Mutex mu_;
  CondVar changed_;
  bool ends_ GUARDED_BY(mu_) = false;
  bool refused_ GUARDED_BY(mu_) = false;      // TakeBuffer gave nothing
  int32_t buffers_out_ GUARDED_BY(mu_) = 0;   // taken, and not written yet
  std::vector<Bytes> spare_ GUARDED_BY(mu_);  // buffers of pages written
  std::deque<Write> writes_ GUARDED_BY(mu_);
  std::deque<Read> reads_ GUARDED_BY(mu_);
  std::vector<Fetched> fetched_ GUARDED_BY(mu_);
  double fetch_seconds_ GUARDED_BY(mu_) = 0;
  std::list<PageKey> by_use_ GUARDED_BY(mu_);  // the least recent first
  std::unordered_map<PageKey, Entry, PageKeyHash> entries_ GUARDED_BY(mu_);

  std::thread thread_;
};

}  // namespace millrace::models
