// The batcher runs one stateless model: a bounded queue before the one thread
// that owns the executor (it is worker 0 of the compute team).
//
//   ASSIGN_OR_RETURN(Reservation place, batcher.Reserve(deadline));  // or 429
//   ... read the tensors ...
//   RETURN_IF_ERROR(batcher.Submit(std::move(place), std::move(task)));
//
// Requests are computed one by one in order of arrival so far; what gathers
// them would stand in the queue, and callers would see it in BatchAnswer alone.
// A request whose client left or whose deadline passed before its turn is never
// computed; one under way ends behind the step that runs.
//
// Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/clock.h"
#include "config/base/metrics.h"
#include "config/base/status.h"
#include "config/base/trace.h"
#include "models/graph/executor.h"
#include "models/tensor/tensor.h"
#include "models/tensor/tensor_spec.h"
#include "scheduler/reservation.h"

namespace millrace::scheduler {

// Why no further request joined a batch.
enum class BatchClosed {
  kFull,       // max_batch_size is reached, as it is now by every request
  kPreferred,  // a preferred size is reached
  kDelay,      // the oldest has waited for max_queue_delay
  kMismatch,   // the next one has other sizes
};
inline constexpr int kNumBatchClosed = 4;
std::string_view BatchClosedName(BatchClosed closed);

struct BatchAnswer {
  std::vector<models::Tensor> outputs;  // in the order of the ports
  int32_t batch_size = 1;               // requests computed together
  BatchClosed closed = BatchClosed::kFull;
};

struct BatchTask {
  std::vector<models::Tensor> inputs;  // in the order of the ports
  Clock::Time deadline = kNever;
  int32_t priority = 0;          // lower runs first; all are alike so far
  std::stop_token stop;          // the client is gone
  std::shared_ptr<Trace> trace;  // may be null
  // The one ending: on the batcher's thread, so it must be short. The place is
  // given back after it.
  std::function<void(StatusOr<BatchAnswer>)> done;
};

struct BatcherOptions {
  std::string model = "";        // label of metrics and log lines
  int32_t max_queue_size = 100;  // waiting beyond the one that is computed
  const Clock* clock = &Clock::Real();
};

class Batcher {
 public:
  // Starts the thread. `registry` may be null. `warm_up`, where there are any,
  // are inputs that are computed once before this returns, so that the first
  // request finds weights packed and memory touched; no metric counts them, and
  // when they fail a line in the log says so and that is all.
  static std::unique_ptr<Batcher> Create(
      std::unique_ptr<models::graph::Executor> executor,
      const BatcherOptions& options, MetricRegistry* registry,
      std::vector<models::Tensor> warm_up = {});
  virtual ~Batcher() = default;  // ends what still waits, joins the thread

  // A place, or RESOURCE_EXHAUSTED with retry_after_ms from the live service
  // rate (queue full), UNAVAILABLE (draining), DEADLINE_EXCEEDED (cannot be
  // met at the present rate).
  virtual StatusOr<Reservation> Reserve(Clock::Time deadline = kNever) = 0;

  // INVALID_ARGUMENT names the input that does not fit the model. An error is
  // the ending: `done` is not called then.
  virtual Status Submit(Reservation place, BatchTask task) = 0;

  // No new places; the queue is worked off until the deadline, what waits then
  // ends with UNAVAILABLE. True if all of it was computed. Every request has
  // had its ending when this returns.
  virtual bool Drain(std::chrono::steady_clock::time_point deadline) = 0;

  virtual const std::vector<models::TensorSpec>& inputs() const = 0;
  virtual const std::vector<models::TensorSpec>& outputs() const = 0;
};

}  // namespace millrace::scheduler
