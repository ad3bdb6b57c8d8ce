// The embedding engine runs a decoder over texts and gives one vector for each:
// hidden states behind the last norm, pooled. Texts of all requests share steps
// under a budget of tokens, in order of arrival; a vector's bits do not depend
// on what stands beside its text.
//
//   ASSIGN_OR_RETURN(Reservation place, engine->Reserve(deadline));  // or 429
//   RETURN_IF_ERROR(engine->Submit(std::move(place), std::move(task)));
//
// One thread owns the runner, which gives hidden rows.
// Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "config/base/clock.h"
#include "config/base/metrics.h"
#include "config/base/status.h"
#include "config/base/trace.h"
#include "config/schema.h"
#include "models/llm/runner.h"
#include "scheduler/reservation.h"

namespace millrace::scheduler {

// Which rows of a text make its vector: the mean of all, the first, the last.
enum class RowPooling { kMean, kFirst, kLast };

struct EmbeddingOptions {
  std::string model = "";     // label of metrics and log lines
  std::string version = "1";  // label of metrics
  RowPooling pooling = RowPooling::kLast;
  int32_t hidden = 0;  // numbers of a row of the runner's
  int32_t max_queue_size = config::CommonSettings::kMaxQueueSize;
  const Clock* clock = &Clock::Real();
};

struct EmbeddingTask {
  using Vectors = std::vector<std::vector<float>>;

  std::vector<std::vector<int32_t>> texts;  // token ids
  Clock::Time deadline = kNever;
  std::stop_token stop = {};          // the client is gone
  std::shared_ptr<Trace> trace = {};  // may be null
  // The one ending: on the engine's thread, so it must be short. The place is
  // given back after it.
  std::function<void(StatusOr<Vectors>)> done = {};
};

class EmbeddingEngine {
 public:
  // Starts the thread. `registry` may be null. CHECKs that the runner gives
  // hidden rows and a row for each token of a step.
  static std::unique_ptr<EmbeddingEngine> Create(
      std::unique_ptr<models::Runner> runner, const EmbeddingOptions& options,
      MetricRegistry* registry);
  virtual ~EmbeddingEngine() = default;  // ends what waits, joins the thread

  // See Batcher::Reserve.
  virtual StatusOr<Reservation> Reserve(Clock::Time deadline = kNever) = 0;
  // INVALID_ARGUMENT for a text that is empty, too long or holds no token ids.
  // An error is the ending: `done` is not called then.
  virtual Status Submit(Reservation place, EmbeddingTask task) = 0;
  // See Batcher::Drain.
  virtual bool Drain(std::chrono::steady_clock::time_point deadline) = 0;

  virtual int32_t max_tokens() const = 0;  // of one text
  virtual int32_t size() const = 0;        // numbers of a vector
  virtual int32_t vocab_size() const = 0;
};

}  // namespace millrace::scheduler
