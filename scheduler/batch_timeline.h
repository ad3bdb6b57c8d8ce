// Records in a capture the batches of a graph, and the operators that each
// member of a team ran.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "config/base/clock.h"
#include "config/base/mutex.h"
#include "config/base/timeline.h"
#include "models/graph/execution_context.h"

namespace millrace::scheduler {

class BatchTimeline {
 public:
  // `timeline` may be null: nothing is recorded.
  BatchTimeline(Timeline* timeline, const std::string& model);

  struct Batch {
    const models::graph::ExecutionContext* context = nullptr;
    Clock::Time begin;      // of the batch
    Clock::Time run_begin;  // of the graph's run in it
    Clock::Time end;
    int32_t rows = 0;
    int32_t requests = 0;
    // Elements of inputs that the requests sent, and those that were put behind
    // them to join requests of different lengths. Both 0: none ever are.
    int64_t values = 0;
    int64_t padding = 0;
  };

  bool on() const { return timeline_ != nullptr && timeline_->on(); }
  void Add(const Batch& batch, const models::graph::Trace& trace);

 private:
  Timeline* const timeline_;
  const std::string process_;
  Mutex mu_;
  std::map<const void*, int> instances_ GUARDED_BY(mu_);  // by context
};

}  // namespace millrace::scheduler
