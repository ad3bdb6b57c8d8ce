// Regions of POSIX shared memory that clients on the same machine register and
// then name in place of a tensor's bytes (Triton's system shared memory
// extension: docs/protocol/extension_shared_memory.md).
//
//   RETURN_IF_ERROR(regions.Register({"input", "/data", 0, 4096}));
//   uint64_t request_bytes = body.size();
//   ASSIGN_OR_RETURN(std::string bytes,
//                    regions.Read({"input", 0, 64}, request_bytes));
//
// Bytes are read and written by file calls and not through a mapping, so a
// client that truncates its region meanwhile causes an error and no signal.
// Thread-safe; a region that is unregistered during a request lives until the
// request is done with it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/mutex.h"
#include "config/base/status.h"

namespace millrace::server {

struct SharedRegion {
  std::string name;
  std::string key;         // of shm_open: "/data"
  uint64_t offset = 0;     // of the region in the object
  uint64_t byte_size = 0;  // of the region
};

// A part of a region, as a tensor's parameters name it.
struct SharedSpan {
  std::string region;
  uint64_t offset = 0;  // within the region
  uint64_t byte_size = 0;
};

class SharedRegions {
 public:
  static constexpr size_t kMaxRegions = 1024;

  // `enabled`: else nothing can be registered, and the error says so. A request
  // may have at most `max_request_bytes`, with what it reads of regions.
  SharedRegions(bool enabled, uint64_t max_request_bytes)
      : enabled_(enabled), max_request_bytes_(max_request_bytes) {}

  // INVALID_ARGUMENT when the object is not there, is smaller than the region,
  // or the name is taken (Triton: ALREADY_EXISTS, 400 over REST).
  Status Register(const SharedRegion& region) EXCLUDES(mu_);
  // Unknown names are ignored, as Triton does. Empty: all.
  void Unregister(const std::string& name) EXCLUDES(mu_);
  // By name; of one (NOT_FOUND when it is unknown) or, if empty, of all.
  StatusOr<std::vector<SharedRegion>> List(const std::string& name) const
      EXCLUDES(mu_);

  // NOT_FOUND for an unknown region; INVALID_ARGUMENT beyond its end, and where
  // a request becomes too large. `request_bytes`: what the request has so far;
  // grows by what is read.
  StatusOr<std::string> Read(const SharedSpan& span,
                             uint64_t& request_bytes) const EXCLUDES(mu_);
  Status Write(const SharedSpan& span, std::string_view bytes) const
      EXCLUDES(mu_);

 private:
  class Object;
  struct Kept {
    SharedRegion region;
    std::shared_ptr<const Object> object;
  };
  StatusOr<Kept> Find(const SharedSpan& span, uint64_t byte_size) const
      EXCLUDES(mu_);

  const bool enabled_;
  const uint64_t max_request_bytes_;
  mutable Mutex mu_;
  std::map<std::string, Kept> kept_ GUARDED_BY(mu_);
};

}  // namespace millrace::server
