// What one context has on a GPU: a stream, memory for values, pinned memory
// that transfers run from, and plans whose work was captured to run again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "config/base/status.h"
#include "models/gpu/cuda_context.h"
#include "models/graph/device.h"

namespace millrace::models::graph {

class CudaState final : public DeviceState {
 public:
  explicit CudaState(std::shared_ptr<CudaContext> context)
      : context_(std::move(context)) {}
  CudaContext& context() { return *context_; }
  // Memory of the device, and of the host for transfers, as large as the
  // largest plan so far needed. What was in it is gone when it grows, and so
  // are captured plans, which name it.
  StatusOr<std::byte*> Arena(int64_t bytes);
  StatusOr<std::byte*> Staging(int64_t bytes);

  // The work of the plan with this number: `ask` puts it on the stream. It is
  // captured at the second call, and run again from then on. A capture that
  // fails is tried again some calls later, three times in all; until it works,
  // and behind the third, the work is asked for each time. Plans that were not
  // run for the longest time are forgotten.
  Status RunOrReplay(int64_t plan, const std::function<Status()>& ask);

  std::vector<std::byte*> on_host;    // of each storage, in a run
  std::vector<std::byte*> on_device;  // likewise

 private:
  struct Captured {
    int64_t plan = 0;
    CudaGraph graph = {};         // empty: not captured
    int failures = 0;             // of captures
    int runs_before_capture = 0;  // of the next one
  };

  const std::shared_ptr<CudaContext> context_;
  CudaBuffer arena_;
  int64_t arena_bytes_ = 0;
  CudaBuffer staging_;
  int64_t staging_bytes_ = 0;
  std::list<Captured> captured_;  // the latest first
};

}  // namespace millrace::models::graph
