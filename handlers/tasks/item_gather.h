// Results of one request's items until all are there. The first failure fails
// the request and stops the others. Thread-safe. Shared by the items.
#pragma once

#include <cstddef>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "config/base/mutex.h"
#include "config/base/out_of_memory.h"
#include "config/base/status.h"
#include "handlers/messages.h"
#include "handlers/task.h"

namespace millrace::handlers {

class ItemGather {
 public:
  ItemGather(size_t num_items, TaskHandler::Done done,
             const std::stop_token& stop);

  std::stop_token stop_token() { return stop_.get_token(); }
  // Of the response; before any item is finished.
  void SetContentType(std::string type) { content_type_ = std::move(type); }

  // Of `count` items at once, where they share a failure.
  void Finish(size_t item_idx, StatusOr<std::string> result, size_t count = 1);
  // With what `make` makes of the graph's outputs, or their failure.
  // UNAVAILABLE where it needs more memory than there is.
  template <typename Make>
  void FinishWith(size_t item_idx, const StatusOr<TensorResponse>& outputs,
                  const Make& make) {
    Finish(item_idx, outputs.ok()
                         ? CatchOutOfMemory([&]() -> StatusOr<std::string> {
                             return make(*outputs);
                           })
                         : StatusOr<std::string>(outputs.status()));
  }

 private:
  const TaskHandler::Done done_;
  std::stop_source stop_;
  const std::stop_callback<std::function<void()>> forward_;
  std::string content_type_;
  Mutex mu_;
  Status error_ GUARDED_BY(mu_);
  size_t left_ GUARDED_BY(mu_);
  std::vector<std::string> results_ GUARDED_BY(mu_);
};

}  // namespace millrace::handlers
