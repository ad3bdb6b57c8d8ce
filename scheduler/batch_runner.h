// Computes the requests of one batch: their tensors are joined, the graph runs
// once, and each request gets its part of the results.
//
//   auto outputs = runner.Run(context, jobs, rows, times);  // of each job
//
// A run ends between two steps when no request of its batch is wanted any more.
//
// Thread-safe, for contexts that differ.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/base/clock.h"
#include "config/base/status.h"
#include "config/base/timeline.h"
#include "models/graph/execution_context.h"
#include "models/tensor/tensor.h"
#include "scheduler/batch_job.h"
#include "scheduler/batch_timeline.h"
#include "scheduler/jagged_rows.h"
#include "scheduler/ragged_rows.h"

namespace millrace::scheduler {

class BatchRunner {
 public:
  using Jobs = std::span<const std::unique_ptr<BatchJob>>;
  using Outputs = std::vector<std::vector<models::Tensor>>;

  // `ragged`, `jagged` and `clock` outlive it; `timeline` may be null.
  BatchRunner(const RaggedRows& ragged, const JaggedRows& jagged,
              const Clock* clock, const std::string& model, Timeline* timeline)
      : ragged_(ragged),
        jagged_(jagged),
        clock_(*clock),
        model_(model),
        timeline_(timeline, model) {}

  // The outputs of each job, which has as many of `rows`. `times` gets how
  // long the parts of the run took, also of one that failed. UNAVAILABLE: there
  // is no memory for it.
  StatusOr<Outputs> Run(models::graph::ExecutionContext& context, Jobs jobs,
                        const std::vector<int32_t>& rows, BatchTimes& times);

  // Whether a capture records runs.
  bool is_told() const { return timeline_.on(); }

 private:
  StatusOr<Outputs> RunTogether(models::graph::ExecutionContext& context,
                                Jobs jobs, const std::vector<int32_t>& rows,
                                BatchTimes& times);
  Status Stopped(Jobs jobs) const;

  const RaggedRows& ragged_;
  const JaggedRows& jagged_;
  const Clock& clock_;
  const std::string model_;
  BatchTimeline timeline_;
};

}  // namespace millrace::scheduler
