#include "server/http/response_store.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace millrace::server::http {

void ResponseStore::Drop(std::list<Kept>::iterator kept) {
  const auto owner = by_tenant_.find(kept->entry->tenant);
  owner->second.bytes -= kept->bytes;
  bytes_ -= kept->bytes;
  by_id_.erase(kept->id);
  owner->second.kept.erase(kept);
  if (owner->second.kept.empty()) by_tenant_.erase(owner);
}

void ResponseStore::MakeRoom() {
  while (by_id_.size() > kMostEntries || bytes_ > kMostBytes) {
    const bool by_bytes = bytes_ > kMostBytes;
    const auto most = std::max_element(
        by_tenant_.begin(), by_tenant_.end(),
        [by_bytes](const auto& a, const auto& b) {
          return by_bytes ? a.second.bytes < b.second.bytes
                          : a.second.kept.size() < b.second.kept.size();
        });
    Drop(most->second.kept.begin());
  }
}

void ResponseStore::Put(const std::string& id, Entry entry) {
  const size_t bytes = entry.response.size() + entry.conversation.size() +
                       entry.input.size() + id.size();
  if (bytes > kMostBytes) return;
  auto shared = std::make_shared<const Entry>(std::move(entry));
  MutexLock lock(mu_);
  Owned& owned = by_tenant_[shared->tenant];
  owned.kept.push_back({.id = id, .entry = std::move(shared), .bytes = bytes});
  owned.bytes += bytes;
  by_id_[id] = std::prev(owned.kept.end());
  bytes_ += bytes;
  MakeRoom();
}

std::shared_ptr<const ResponseStore::Entry> ResponseStore::Find(
    std::string_view id, uint32_t tenant) const {
  MutexLock lock(mu_);
  const auto it = by_id_.find(std::string(id));
  if (it == by_id_.end() || it->second->entry->tenant != tenant) return nullptr;
  return it->second->entry;
}

bool ResponseStore::Erase(std::string_view id, uint32_t tenant) {
  MutexLock lock(mu_);
  const auto it = by_id_.find(std::string(id));
  if (it == by_id_.end() || it->second->entry->tenant != tenant) return false;
  Drop(it->second);
  return true;
}

}  // namespace millrace::server::http
