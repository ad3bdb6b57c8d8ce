// One thread at a time gives out what is due; others leave theirs to it.
#include "scheduler/ordered_endings.h"

#include <utility>

namespace millrace::scheduler {

void OrderedEndings::End(int64_t sequence, std::function<void()> ending) {
  {
    MutexLock lock(mu_);
    held_.emplace(sequence, std::move(ending));
    if (running_) return;
    running_ = true;
  }
  while (true) {
    std::function<void()> due;
    {
      MutexLock lock(mu_);
      const auto first = held_.find(next_);
      if (first == held_.end()) {
        running_ = false;
        return;
      }
      due = std::move(first->second);
      held_.erase(first);
      ++next_;
    }
    due();
  }
}

}  // namespace millrace::scheduler
