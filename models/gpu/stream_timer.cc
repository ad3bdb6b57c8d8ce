#include "models/gpu/stream_timer.h"

#include <utility>

namespace millrace::models {

Status StreamTimer::Begin() {
  num_marks_ = 0;
  begun_ = std::chrono::steady_clock::now();
  return Mark();
}

Status StreamTimer::Mark() {
  if (num_marks_ == events_.size()) {
    ASSIGN_OR_RETURN(CudaEvent event, context_.NewEvent());
    events_.push_back(std::move(event));
  }
  RETURN_IF_ERROR(context_.Record(events_[num_marks_]));
  ++num_marks_;
  return OkStatus();
}

StatusOr<std::vector<StreamTimer::Time>> StreamTimer::Times() {
  std::vector<Time> times;
  for (size_t i = 0; i < num_marks_; ++i) {
    ASSIGN_OR_RETURN(const double seconds,
                     context_.SecondsBetween(events_[0], events_[i]));
    times.push_back(begun_ + std::chrono::duration_cast<Time::duration>(
                                 std::chrono::duration<double>(seconds)));
  }
  return times;
}

}  // namespace millrace::models
