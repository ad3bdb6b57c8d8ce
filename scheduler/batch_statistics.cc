// Adds up what the batcher's threads report.
#include "scheduler/batch_statistics.h"

#include <chrono>

namespace millrace::scheduler {

void BatchStatistics::Computed(int32_t rows, const BatchTimes& times) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  MutexLock lock(mu_);
  counts_.inferences += rows;
  ++counts_.executions;
  counts_.last_inference_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  // Where the model sets no limit, clients choose the sizes: they would be more
  // and more.
  constexpr size_t kMostSizes = 1024;
  auto& sizes = counts_.by_batch_rows;
  if (sizes.size() >= kMostSizes && !sizes.contains(rows)) return;
  BatchCounts::OfSize& size = sizes[rows];
  size.compute_input.Add(times.compute_input);
  size.compute_infer.Add(times.compute_infer);
  size.compute_output.Add(times.compute_output);
}

void BatchStatistics::Ended(const Status& status, Clock::Duration total,
                            const BatchTimes& times) {
  MutexLock lock(mu_);
  switch (status.code()) {
    case StatusCode::kOk:
      counts_.success.Add(total);
      counts_.queue.Add(times.queue);
      counts_.compute_input.Add(times.compute_input);
      counts_.compute_infer.Add(times.compute_infer);
      counts_.compute_output.Add(times.compute_output);
      return;
    case StatusCode::kCancelled:
      return counts_.cancelled.Add(total);
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kUnavailable:
      return counts_.rejected.Add(total);
    default:
      return counts_.failure.Add(total);
  }
}

void BatchStatistics::Refused() {
  MutexLock lock(mu_);
  counts_.rejected.Add(Clock::Duration{0});
}

BatchCounts BatchStatistics::counts() const {
  MutexLock lock(mu_);
  return counts_;
}

}  // namespace millrace::scheduler
