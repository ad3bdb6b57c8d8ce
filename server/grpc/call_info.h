// What the metadata of a call says before its message is looked at: who asks,
// under which request id, and until when.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "config/base/clock.h"
#include "config/base/status.h"
#include "server/auth.h"

namespace grpc {
class CallbackServerContext;
}

namespace millrace::server {

struct CallInfo {
  std::string request_id;  // x-request-id, or one of our own
  Clock::Time deadline = kNever;
  std::string peer;
};

// Thread-safe.
class CallReader {
 public:
  // Both outlive the reader; auth may be null: nobody is refused.
  CallReader(const Auth* auth, const Clock* clock);

  // Reads the metadata and sends x-request-id with the initial metadata of the
  // answer; so it is called once, before anything is written.
  CallInfo Read(::grpc::CallbackServerContext& context);
  // Checks `authorization: Bearer KEY` or `x-api-key: KEY`.
  Status Authorize(const ::grpc::CallbackServerContext& context) const;

 private:
  std::string MakeId();

  const Auth* const auth_;
  const Clock* const clock_;
  const uint64_t id_seed_;
  // Relaxed: only uniqueness matters.
  std::atomic<uint64_t> next_id_{0};
};

}  // namespace millrace::server
