// Responses that clients may ask for again or go on from, in memory. Each
// belongs to the tenant that made it; other tenants do not find it. When there
// are too many or too many bytes, the tenant that keeps the most loses its
// oldest, so that no tenant can push out what others keep. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "config/base/mutex.h"

namespace millrace::server::http {

class ResponseStore {
 public:
  struct Entry {
    uint32_t tenant = 0;       // number of the tenant that made it
    std::string response;      // JSON, as it was sent
    std::string conversation;  // JSON array of chat messages, its output's too
    std::string input;         // JSON array of the request's own items
  };
  // Of all tenants together.
  static constexpr size_t kMostEntries = 1024;
  static constexpr size_t kMostBytes = size_t{64} << 20;

  // An entry larger than the bound is not kept.
  void Put(const std::string& id, Entry entry);
  // Null when there is none, or when it belongs to another tenant.
  std::shared_ptr<const Entry> Find(std::string_view id, uint32_t tenant) const;
  // False where Find would give null.
  bool Erase(std::string_view id, uint32_t tenant);

 private:
  struct Kept {
    std::string id;
    std::shared_ptr<const Entry> entry;  // shared with readers
    size_t bytes;
  };
  // What one tenant keeps.
  struct Owned {
    std::list<Kept> kept;  // the oldest first, never empty
    size_t bytes = 0;
  };
  void Drop(std::list<Kept>::iterator kept) REQUIRES(mu_);
  void MakeRoom() REQUIRES(mu_);

  mutable Mutex mu_;
  std::map<uint32_t, Owned> by_tenant_ GUARDED_BY(mu_);
  std::unordered_map<std::string, std::list<Kept>::iterator> by_id_
      GUARDED_BY(mu_);
  size_t bytes_ GUARDED_BY(mu_) = 0;
};

}  // namespace millrace::server::http
