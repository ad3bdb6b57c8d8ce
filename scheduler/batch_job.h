// One request on its way through a batcher: what the caller submits, what the
// batcher notes about it, and what it answers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/clock.h"
#include "config/base/status.h"
#include "config/base/trace.h"
#include "models/tensor/tensor.h"
#include "scheduler/reservation.h"

namespace millrace::scheduler {

// Why no further request joined a batch.
enum class BatchClosed {
  kFull,       // max_batch_size is reached, or the next request exceeds it
  kPreferred,  // a preferred size is reached
  kDelay,      // the oldest request has waited for max_queue_delay
  kMismatch,   // the next one has other sizes, and order must be kept
  kDeadline,   // a larger batch would end after a request's deadline
  kIdle,       // an instance was idle and there is no queue delay
};
inline constexpr int kNumBatchClosed = 6;
std::string_view BatchClosedName(BatchClosed closed);

// Where a request's time went.
struct BatchTimes {
  Clock::Duration queue{0};           // from Submit to the batch
  Clock::Duration compute_input{0};   // joining the inputs of the batch
  Clock::Duration compute_infer{0};   // running the model
  Clock::Duration compute_output{0};  // parting the outputs
};

struct BatchResult {
  std::vector<models::Tensor> outputs;  // in the order of the ports
  int32_t batch_rows = 1;               // rows computed together
  int32_t batch_requests = 1;           // and the requests they came from
  bool ran_here = false;                // see BatchTask::may_run_here
  BatchClosed closed = BatchClosed::kIdle;
  BatchTimes times;
};

// All jagged features together, as a KeyedJaggedTensor of torchrec has them: of
// each feature, in the order of the ports, what its rows hold.
struct KeyedJagged {
  models::Tensor values;   // [n]
  models::Tensor lengths;  // [features * rows], INT64 or INT32
  std::optional<models::Tensor> weights =
      {};  // [n], of features that have some
};

struct BatchTask {
  std::vector<models::Tensor> inputs;  // in the order of the ports
  // Stands for the inputs of jagged features, which are default tensors then.
  std::optional<KeyedJagged> keyed = {};
  // Of them, offsets of jagged features in whose place lengths stand; empty:
  // none.
  std::vector<size_t> lengths = {};
  Clock::Time deadline = kNever;
  int32_t priority = 0;              // level; 0: the model's default
  Clock::Duration queue_timeout{0};  // the request's own; 0: the model's
  std::stop_token stop;              // the client is gone
  std::shared_ptr<Trace> trace;      // may be null
  // Submit may compute it on the caller's thread where that takes a moment and
  // an instance is idle; `done` is called before Submit returns then.
  bool may_run_here = false;
  // The one ending: on a batcher's thread or within Submit, so it must be
  // short. The place is given back before it.
  std::function<void(StatusOr<BatchResult>)> done;
};

struct BatchJob {
  BatchTask task;
  Reservation place;
  Clock::Time submitted;
  int32_t rows = 1;
  // Only jobs of one kind can share a batch: types and sizes of the inputs
  // but for the rows.
  std::string kind = {};

  // ---- set by the queue ----
  int64_t sequence = 0;  // order of arrival
  int32_t level = 0;     // of priority; lower first
  Clock::Time expires = kNever;
  bool delayed = false;  // its time in the queue is over, see TimeoutAction
};

}  // namespace millrace::scheduler
