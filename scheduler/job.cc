#include "scheduler/job.h"

#include <algorithm>
#include <chrono>

namespace millrace::scheduler {

void Job::TellProgress(int32_t num_computed, Clock::Time now) {
  if (!progress) return;
  const bool is_first = progress->processed < 0;
  const int32_t processed = std::clamp(num_computed, 0, progress->total);
  // A prompt that was preempted is computed again; that is no news.
  if (processed <= progress->processed) return;
  if (is_first) progress->cached = processed;
  progress->processed = processed;
  progress->seconds = std::chrono::duration<double>(now - began).count();
  stream->PushProgress(*progress);
}

}  // namespace millrace::scheduler
