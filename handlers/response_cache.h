// Answers of a graph, kept for requests of the same bytes.
//
//   auto cache = std::make_unique<ResponseCache>(max_bytes, "net", registry);
//   handler = MakeCachingHandler(std::move(handler), cache.get(), pool, clock);
//
// A request's key is the SHA-256 of its inputs (name, type, sizes, bytes) and
// of the outputs it asks for. One cache belongs to one version of a model and
// goes with it, so that another version never answers. Answers that were not
// asked for the longest go first when there is no room. Failures are not kept.
// Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "config/base/clock.h"
#include "config/base/metrics.h"
#include "config/base/mutex.h"
#include "handlers/handler.h"

namespace millrace::handlers {

struct CacheCounts {
  int64_t hits = 0;
  int64_t misses = 0;
  Clock::Duration hit_time{0};   // looking up and answering
  Clock::Duration miss_time{0};  // looking up and keeping
};

class ResponseCache {
 public:
  using Key = std::array<uint8_t, 32>;

  // `registry` may be null.
  ResponseCache(int64_t max_bytes, const std::string& model,
                MetricRegistry* registry);
  ~ResponseCache();
  ResponseCache(const ResponseCache&) = delete;
  ResponseCache& operator=(const ResponseCache&) = delete;

  static Key KeyOf(const TensorRequest& request);

  // Its bytes are shared with the cache.
  std::optional<TensorResponse> Find(const Key& key);
  // Copies the answer, or leaves it where it is larger than the cache.
  void Keep(const Key& key, const TensorResponse& response);

  void Count(bool is_hit, Clock::Duration time);
  CacheCounts counts() const;
  int64_t bytes() const;

 private:
  struct Entry {
    Key key;
    std::vector<NamedTensor> outputs;
    int64_t bytes = 0;
  };
  using Entries = std::list<Entry>;

  void Forget(Entries::iterator entry) REQUIRES(mu_);

  const int64_t max_bytes_;
  Counter hits_;
  Counter misses_;
  Counter evictions_;
  Gauge bytes_in_use_;  // of all versions

  mutable Mutex mu_;
  Entries entries_ GUARDED_BY(mu_);  // last used first
  std::map<Key, Entries::iterator> by_key_ GUARDED_BY(mu_);
  int64_t bytes_ GUARDED_BY(mu_) = 0;
  CacheCounts counts_ GUARDED_BY(mu_);
};

// Answers from the cache where it can, else asks `handler`. The cache outlives
// the handler and its requests.
std::unique_ptr<TensorHandler> MakeCachingHandler(
    std::unique_ptr<TensorHandler> handler, ResponseCache* cache,
    const Clock* clock = &Clock::Real());

}  // namespace millrace::handlers
