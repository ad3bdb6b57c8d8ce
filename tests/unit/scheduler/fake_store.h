// A page store in memory, whose contents outlive the engine that owns it. Keys
// are made of hashes that do not collide in tests. What is fetched comes at
// once, or when the test says so.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "config/base/mutex.h"
#include "models/llm/page_store.h"

namespace millrace::scheduler {

// What a store holds; shared by stores one after the other. Thread-safe.
struct FakeShelf {
  Mutex mu;
  CondVar changed;
  std::map<std::array<uint64_t, 2>, models::PageStore::Bytes> pages
      GUARDED_BY(mu);
  // Fetches wait until this is false.
  bool closed GUARDED_BY(mu) = false;
  // Every so many pages one is not there when it is fetched; 0: all are.
  int lose_every GUARDED_BY(mu) = 0;
  int num_read GUARDED_BY(mu) = 0;
  int num_fetches GUARDED_BY(mu) = 0;
  std::function<void()> news GUARDED_BY(mu);

  size_t size() {
    MutexLock lock(mu);
    return pages.size();
  }
  // With FakeStore(shelf): the engine keeps so many pages, in the end.
  void AwaitPages(size_t num) {
    MutexLock lock(mu);
    while (pages.size() < num) changed.Wait(mu);
  }
  void AwaitFetches(int num) {
    MutexLock lock(mu);
    while (num_fetches < num) changed.Wait(mu);
  }
  void Open() {
    std::function<void()> tell;
    {
      MutexLock lock(mu);
      closed = false;
      tell = news;
    }
    if (tell) tell();
  }
};

class FakeStore final : public models::PageStore {
 public:
  FakeStore(std::shared_ptr<FakeShelf> shelf, int64_t page_bytes,
            int32_t max_fetch = 8)
      : shelf_(std::move(shelf)),
        page_bytes_(page_bytes),
        max_fetch_(max_fetch) {}
  ~FakeStore() override {
    MutexLock lock(shelf_->mu);
    shelf_->news = nullptr;
  }

  models::PageKey KeyOf(const models::PageKey* before,
                        std::span<const int32_t> ids) const override {
    models::PageKey key = before != nullptr ? *before : models::PageKey{};
    for (const int32_t id : ids) {
      key.words[0] =
          (key.words[0] ^ static_cast<uint64_t>(id)) * 0x9e3779b97f4a7c15u;
      key.words[0] ^= key.words[0] >> 31;
      key.words[1] = (key.words[1] + key.words[0]) * 0xbf58476d1ce4e5b9u;
      key.words[1] ^= key.words[1] >> 29;
    }
    return key;
  }
  bool Holds(const models::PageKey& key) const override {
    MutexLock lock(shelf_->mu);
    return shelf_->pages.contains(key.words);
  }
  void Used(std::span<const models::PageKey>) override {}
  std::optional<Bytes> TakeBuffer() override {
    return Bytes(static_cast<size_t>(page_bytes_));
  }
  void Keep(const models::PageKey& key, Bytes bytes) override {
    MutexLock lock(shelf_->mu);
    shelf_->pages[key.words] = std::move(bytes);
    shelf_->changed.NotifyAll();
  }
  int32_t max_fetch() const override { return max_fetch_; }
  void Fetch(uint64_t ticket, std::vector<models::PageKey> keys) override {
    std::function<void()> tell;
    {
      MutexLock lock(shelf_->mu);
      asked_.emplace_back(ticket, std::move(keys));
      ++shelf_->num_fetches;
      shelf_->changed.NotifyAll();
      if (!shelf_->closed) tell = shelf_->news;
    }
    if (tell) tell();
  }
  std::vector<Fetched> TakeFetched() override {
    MutexLock lock(shelf_->mu);
    std::vector<Fetched> all;
    if (shelf_->closed) return all;
    for (auto& [ticket, keys] : std::exchange(asked_, {})) {
      Fetched& fetched = all.emplace_back();
      fetched.ticket = ticket;
      for (const models::PageKey& key : keys) {
        const auto page = shelf_->pages.find(key.words);
        if (page == shelf_->pages.end()) break;
        if (shelf_->lose_every > 0 &&
            ++shelf_->num_read % shelf_->lose_every == 0) {
          shelf_->pages.erase(page);
          break;
        }
        fetched.pages.push_back(page->second);
      }
    }
    return all;
  }
  double fetch_seconds() const override { return 0; }
  void OnNews(std::function<void()> news) override {
    MutexLock lock(shelf_->mu);
    shelf_->news = std::move(news);
  }

 private:
  const std::shared_ptr<FakeShelf> shelf_;
  const int64_t page_bytes_;
  const int32_t max_fetch_;
  std::vector<std::pair<uint64_t, std::vector<models::PageKey>>> asked_;
};

}  // namespace millrace::scheduler
