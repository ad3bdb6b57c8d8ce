// The bytes of the requests of a run, made before the clock starts. Only later
// turns of a conversation are made while the run goes on, since they hold the
// replies to the turns before them.
//
// Immutable after its factory: threads share one.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "loadtest/dataset.h"
#include "loadtest/options.h"

namespace millrace::loadtest {

class Requests {
 public:
  virtual ~Requests() = default;

  // Different conversations; a run that needs more begins again with the
  // first one.
  virtual int64_t size() const = 0;
  virtual int64_t NumTurns(int64_t) const { return 1; }
  virtual std::chrono::nanoseconds Delay(int64_t /*conversation*/,
                                         int64_t /*turn*/) const {
    return std::chrono::nanoseconds(0);
  }
  // A whole HTTP request, or the message of a gRPC call. `replies` are the
  // texts that answered the turns before. The bytes stand in `scratch` or in
  // this object.
  virtual std::string_view Bytes(int64_t conversation, int64_t turn,
                                 const std::vector<std::string>& replies,
                                 std::string& scratch) const = 0;
};

// chat, completions and embeddings.
std::unique_ptr<Requests> MakeTextRequests(const Options& options,
                                           std::string_view model,
                                           Dataset dataset);
// The same bytes each time.
std::unique_ptr<Requests> MakeFixedRequests(std::vector<std::string> bytes);

}  // namespace millrace::loadtest
