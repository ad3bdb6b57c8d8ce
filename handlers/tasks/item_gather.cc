#include "handlers/tasks/item_gather.h"

#include <utility>

namespace millrace::handlers {

ItemGather::ItemGather(size_t num_items, TaskHandler::Done done,
                       const std::stop_token& stop)
    : done_(std::move(done)),
      forward_(stop, [this] { stop_.request_stop(); }),
      left_(num_items),
      results_(num_items) {}

void ItemGather::Finish(size_t item_idx, StatusOr<std::string> result,
                        size_t count) {
  StatusOr<TaskResponse> answer = TaskResponse{};
  bool failed = false;
  {
    MutexLock lock(mu_);
    if (result.ok()) {
      results_[item_idx] = *std::move(result);
    } else if (error_.ok()) {
      error_ = result.status();
    }
    failed = !error_.ok();
    left_ -= count;
    if (left_ == 0) {
      if (failed) {
        answer = error_;
      } else {
        answer->results = std::move(results_);
        if (!content_type_.empty()) answer->content_type = content_type_;
      }
    }
    if (left_ > 0) count = 0;
  }
  if (failed) stop_.request_stop();
  if (count > 0) done_(std::move(answer));
}

}  // namespace millrace::handlers
