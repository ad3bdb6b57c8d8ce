// The batcher runs one stateless model: a bounded queue before one or several
// instances, each a thread that owns an execution context (it is worker 0 of
// the compute team).
//
//   ASSIGN_OR_RETURN(Reservation place, batcher.Reserve(deadline));  // or 429
//   ... read the tensors ...
//   RETURN_IF_ERROR(batcher.Submit(std::move(place), std::move(task)));
//
// Requests of equal sizes are joined along their first dimension, as
// BatchingOptions say; batch_former.h says which and when. Those of inputs
// that are declared ragged may differ in length (ragged_rows.h), and those of
// jagged features in the number of their values (jagged_rows.h). Batching does
// not change a request's bits, since the runtime computes each row alike
// whatever stands beside it. When a batch fails, its requests are computed
// again one by one, so that only those that fail by themselves end with an
// error.
//
// A graph that is computed in microseconds (ExecutionContext::RunIfTiny) needs
// no thread of its own: where the caller allows it, no delay is asked for,
// nothing waits and an instance is idle, Submit computes the request itself. To
// clients that is a batch of one that an idle instance took at once.
//
// A request whose client left or whose deadline passed before its turn is never
// computed; one under way ends behind the step that runs, if it is alone or all
// of its batch are unwanted.
//
// Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/base/clock.h"
#include "config/base/metrics.h"
#include "config/base/status.h"
#include "config/base/timeline.h"
#include "config/schema.h"
#include "models/graph/execution_context.h"
#include "models/tensor/tensor.h"
#include "models/tensor/tensor_spec.h"
#include "scheduler/batch_job.h"
#include "scheduler/batch_statistics.h"
#include "scheduler/batching_options.h"
#include "scheduler/jagged_rows.h"
#include "scheduler/ragged_rows.h"
#include "scheduler/reservation.h"

namespace millrace::scheduler {

// A request that is made up.
struct WarmUpSample {
  std::string name;
  std::vector<models::Tensor> inputs;  // in the order of the graph's
  int64_t count = 1;                   // how often each instance computes it
};

struct BatcherOptions {
  std::string model = "";     // label of metrics and log lines
  std::string version = "1";  // label of metrics
  // Waiting beyond what is computed.
  int32_t max_queue_size = config::CommonSettings::kMaxQueueSize;
  BatchingOptions batching = {};
  RaggedRows ragged = {};  // made for the graph's ports
  JaggedRows jagged = {};  // likewise; one of both at most
  const Clock* clock = &Clock::Real();
  Timeline* timeline = nullptr;  // gets the batches while a capture runs
  // Each instance computes these before it takes requests, behind `warm_ups`;
  // what fails is told by sample_status(). No metric counts them. Null: none.
  std::shared_ptr<const std::vector<WarmUpSample>> samples = {};
};

class Batcher {
 public:
  using Inputs = std::vector<models::Tensor>;

  // Starts a thread for each instance; there is at least one, and all are of
  // one graph. `registry` may be null. `warm_ups` are inputs that each instance
  // computes before this returns, so that the first request finds weights
  // packed and memory touched; no metric counts them, and when one fails a line
  // in the log says so and that is all.
  static std::unique_ptr<Batcher> Create(
      std::vector<std::unique_ptr<models::graph::ExecutionContext>> instances,
      const BatcherOptions& options, MetricRegistry* registry,
      std::vector<Inputs> warm_ups = {});
  // The same with one instance and one set of inputs to warm it up; none where
  // `warm_up` is empty.
  static std::unique_ptr<Batcher> Create(
      std::unique_ptr<models::graph::ExecutionContext> instance,
      const BatcherOptions& options, MetricRegistry* registry,
      Inputs warm_up = {});
  virtual ~Batcher() = default;  // ends what still waits, joins the threads

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

  // While serving: these instances, at least one, take over. Each is warmed up
  // before it takes requests; those before them compute their batches to the
  // end. One caller at a time, not beside a Drain.
  virtual void SetInstances(
      std::vector<std::unique_ptr<models::graph::ExecutionContext>>
          instances) = 0;
  virtual int32_t num_instances() const = 0;

  // The first sample that an instance could not compute, with its name.
  virtual Status sample_status() const = 0;

  virtual BatchCounts counts() const = 0;
  virtual const BatchingOptions& batching() const = 0;
  // Whether a task may leave the input out, as a default tensor: a mask that is
  // made here.
  virtual bool MakesInput(size_t input) const = 0;
  // Whether the input belongs to a jagged feature (BatchTask::keyed).
  virtual bool IsJagged(size_t input) const = 0;
  // What a task calls lengths that it gives instead of these offsets
  // (BatchTask::lengths); empty: the input holds no offsets.
  virtual const std::string& LengthsName(size_t input) const = 0;
  virtual const std::vector<models::TensorSpec>& inputs() const = 0;
  virtual const std::vector<models::TensorSpec>& outputs() const = 0;
};

}  // namespace millrace::scheduler
