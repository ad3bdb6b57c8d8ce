// Speech to text, segment by segment, by three graphs: features of a segment go
// to the encoder, its encodings through the search, which asks the joiner and
// the predictor in turn. What it keeps between two runs is the caller's.
//
//   recogniser.Run({.state = std::move(state), .samples = chunk}, done, stop);
//   Transcript so_far = recogniser.TranscriptOf(state);
//
// Chunks are of any length: what does not fill a segment waits in the state.
// The last run hears silence behind its end, so that all of its sound is
// encoded. Runs beyond parts.max_queue_size and one for each instance of the
// encoder are refused at once; each asks one graph at a time, so queues of the
// graphs that are as long take all that a run asks. Thread-safe; a run is
// computed on the graphs' threads, or on its caller's where they are idle.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "config/base/clock.h"
#include "config/base/metrics.h"
#include "config/base/status.h"
#include "config/transducer_settings.h"
#include "handlers/make_task.h"
#include "handlers/messages.h"
#include "handlers/pool.h"
#include "handlers/tasks/labels.h"
#include "handlers/tasks/transcript.h"
#include "handlers/transducer/transducer_features.h"
#include "handlers/transducer/transducer_ports.h"
#include "handlers/transducer/transducer_search.h"
#include "handlers/transducer/transducer_state.h"

namespace millrace::handlers {

class TransducerRecogniser {
 public:
  // Parts and graphs outlive it and its runs; parts.tensors is not used.
  // INVALID_ARGUMENT says what does not fit the graphs.
  static StatusOr<std::unique_ptr<TransducerRecogniser>> Create(
      const TaskParts& parts, const config::TransducerSettings& settings,
      const TransducerGraphs& graphs);

  // A run's place; given back by its destructor, before the run's `done`.
  struct GiveBack {
    void operator()(const TransducerRecogniser* of) const {
      of->in_flight_.fetch_sub(1, std::memory_order_release);
    }
  };
  using Place = std::unique_ptr<const TransducerRecogniser, GiveBack>;

  struct Request {
    TransducerState state = {};
    std::vector<float> samples = {};  // new ones, -1 to 1
    bool is_last = false;
    int32_t priority = 0;
    Clock::Time deadline = kNever;
    std::string request_id = {};
    Place place = {};  // null: Run takes one
  };
  struct Result {
    TransducerState state;
    BatchFacts batch = {};  // times: sums over what the graphs computed
  };
  // `done` is called once, from a thread of the pool, or, for a refusal, before
  // this returns.
  using Done = std::function<void(StatusOr<Result>)>;
  void Run(Request request, Done done, std::stop_token stop) const;

  Transcript TranscriptOf(const TransducerState& state) const;
  double SecondsOf(int64_t num_samples) const {
    return static_cast<double>(num_samples) /
           static_cast<double>(sample_rate());
  }
  // To be called before a run's sound is decoded. RESOURCE_EXHAUSTED where
  // there is no place, UNAVAILABLE while draining.
  StatusOr<Place> Reserve() const;
  int64_t sample_rate() const;  // Hz
  const TaskParts& parts() const { return parts_; }
  Status HasPlace() const;  // what Reserve would say now
  // Places that are taken.
  int64_t in_flight() const {
    return in_flight_.load(std::memory_order_acquire);
  }

 private:
  class OneRun;

  TransducerRecogniser(const TaskParts& parts, TransducerPorts ports,
                       TransducerFeatures features, Labels labels,
                       const TransducerOptions& options);
  Status Check(const Request& request) const;
  Status Full() const;
  void Observe(int64_t num_samples, const BatchFacts& batch) const;

  const TaskParts parts_;
  const TransducerPorts ports_;
  const TransducerFeatures features_;
  const Labels labels_;
  const TransducerOptions options_;
  const int64_t max_runs_;
  Counter audio_;
  Counter compute_;
  Histogram factor_;
  // Acquire and release: who sees none sees what they did.
  mutable std::atomic<int64_t> in_flight_{0};
};

}  // namespace millrace::handlers
