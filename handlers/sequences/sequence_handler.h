// The handler of a model that keeps a state for each sequence of requests.
// Requests of one sequence are computed one after the other, in the order in
// which they came; those of different sequences go to the model's batcher at
// the same time, which may join them.
//
//   start ─► states = initial; each request gets them, its new ones are kept
//   end   ─► states are let go of
//
// A request that fails leaves its sequence's states as they were. A sequence
// that nobody asks for max_idle_us is ended.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "config/base/clock.h"
#include "config/base/metrics.h"
#include "config/base/status.h"
#include "config/sequence_settings.h"
#include "handlers/handler.h"

namespace millrace::handlers {

struct SequenceParts {
  std::string model;   // for messages and metrics
  std::string folder;  // files of initial states
  std::shared_ptr<const config::SequenceSettings> settings;  // never null
  int64_t max_waiting = 128;  // requests of one sequence
  // A request's own timeout is of its time in the model's queue; else of all
  // its time, also that behind others of its sequence.
  bool timeout_is_of_queue = false;
  MetricRegistry* registry = nullptr;  // may be null
  const Clock* clock = &Clock::Real();
};

// `model` computes; it takes the model's own inputs. INVALID_ARGUMENT when the
// settings name what it does not have.
StatusOr<std::unique_ptr<TensorHandler>> MakeSequenceHandler(
    std::unique_ptr<TensorHandler> model, const SequenceParts& parts);

}  // namespace millrace::handlers
