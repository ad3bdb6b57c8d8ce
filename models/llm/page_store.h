// Full pages of the KV cache kept outside the pool, in files or wherever an
// implementation has room, so that they outlive their eviction and the
// process. A page is known by a digest of the model and of all tokens up to
// its end, so it holds the same bits for every request.
//
//   PageKey key = store.KeyOf(before, ids);     // before: of the page before
//   if (!store.Holds(key)) {
//     if (auto bytes = store.TakeBuffer()) {    // else: try again later
//       runner.ReadPage(page, *bytes);
//       store.Keep(key, std::move(*bytes));
//     }
//   }
//   store.Fetch(7, keys);                       // ... some time later ...
//   for (PageStore::Fetched& fetched : store.TakeFetched()) ...
//
// No call blocks on a file: reading and writing are done by a thread of the
// store. Calls come from one thread, the engine's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace millrace::models {

struct PageKey {
  std::array<uint64_t, 2> words = {};
  friend bool operator==(const PageKey&, const PageKey&) = default;
};
struct PageKeyHash {
  size_t operator()(const PageKey& key) const {
    return static_cast<size_t>(key.words[0]);  // a digest is well mixed
  }
};

class PageStore {
 public:
  using Bytes = std::vector<std::byte>;  // of one page

  virtual ~PageStore() = default;

  // Of the page with these kPageTokens ids that follows the page `before`;
  // null: of a first page.
  virtual PageKey KeyOf(const PageKey* before,
                        std::span<const int32_t> ids) const = 0;
  // The page was kept, also when it is not written yet.
  virtual bool Holds(const PageKey& key) const = 0;
  // These pages, in order of position, were asked for: they are the last to
  // make room for others.
  virtual void Used(std::span<const PageKey> keys) = 0;

  // Room for a page that will be kept; nothing while as many wait to be
  // written as may.
  virtual std::optional<Bytes> TakeBuffer() = 0;
  virtual void Keep(const PageKey& key, Bytes bytes) = 0;

  // Most pages of one Fetch.
  virtual int32_t max_fetch() const = 0;
  // Reads these pages up to the first that is not there or is damaged.
  virtual void Fetch(uint64_t ticket, std::vector<PageKey> keys) = 0;
  struct Fetched {
    uint64_t ticket = 0;
    std::vector<Bytes> pages;  // of the first keys; maybe none
  };
  // What has come since the last call; each ticket comes once.
  virtual std::vector<Fetched> TakeFetched() = 0;
  // What a page takes to fetch, by those fetched so far; 0: none was.
  virtual double fetch_seconds() const = 0;

  // Called from the store's thread when something was fetched, or when there is
  // room again after TakeBuffer gave nothing. Set before the first use.
  virtual void OnNews(std::function<void()> news) = 0;
};

}  // namespace millrace::models
