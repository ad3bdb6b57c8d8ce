#include "config/base/timeline.h"

namespace millrace {

int Timeline::Track(std::string_view process, std::string_view thread) {
  MutexLock lock(mu_);
  for (size_t i = 0; i < tracks_.size(); ++i) {
    if (tracks_[i].process == process && tracks_[i].thread == thread) {
      return static_cast<int>(i);
    }
  }
  tracks_.push_back({std::string(process), std::string(thread)});
  return static_cast<int>(tracks_.size()) - 1;
}

void Timeline::AddLocked(TimelineSlice slice) {
  if (!capturing_) return;
  if (capture_.slices.size() >= kMaxSlices) {
    ++capture_.num_dropped;
    return;
  }
  capture_.slices.push_back(std::move(slice));
}

void Timeline::Add(TimelineSlice slice) {
  MutexLock lock(mu_);
  AddLocked(std::move(slice));
}

void Timeline::Add(std::vector<TimelineSlice> slices) {
  MutexLock lock(mu_);
  for (TimelineSlice& slice : slices) AddLocked(std::move(slice));
}

bool Timeline::Start(Clock::Time now) {
  MutexLock lock(mu_);
  if (capturing_) return false;
  capturing_ = true;
  capture_ = {};
  capture_.begin = now;
  on_.store(true, std::memory_order_relaxed);
  return true;
}

TimelineCapture Timeline::Stop(Clock::Time now) {
  MutexLock lock(mu_);
  on_.store(false, std::memory_order_relaxed);
  capturing_ = false;
  capture_.end = now;
  capture_.tracks = tracks_;
  return std::exchange(capture_, {});
}

}  // namespace millrace
