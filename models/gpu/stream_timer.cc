#include "models/gpu/stream_timer.h"

#include <utility>

namespace millrace::models {

Status StreamTimer::Begin() {
  num_marks_ = 0;
  begun_ = std::chrono::steady_clock::now();
  return Mark();
}

Status StreamTimer::Mark() {
  RETURN_IF_ERROR(Reserve(num_marks_));
  RETURN_IF_ERROR(context_.Record(events_[num_marks_]));
  ++num_marks_;
  return OkStatus();
}

Status StreamTimer::Reserve(size_t marks) {
  while (events_.size() <= marks) {
    ASSIGN_OR_RETURN(CudaEvent event, context_.NewEvent());
    events_.push_back(std::move(event));
  }
  return OkStatus();
}

void StreamTimer::Ran(size_t marks) {
  CHECK(marks < events_.size(), "marks that ran were reserved");
  num_marks_ = marks + 1;
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
