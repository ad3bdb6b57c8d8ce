// How requests of one stateless model are gathered into batches. Names, units
// and meaning follow Triton's `max_batch_size` and `dynamic_batching`
// (model_config.proto, ModelDynamicBatching).
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <vector>

#include "config/base/clock.h"

namespace millrace::scheduler {

// What becomes of a request whose time in the queue is over.
enum class TimeoutAction {
  kReject,  // it ends with UNAVAILABLE
  kDelay,   // it waits behind all requests whose time is not over
};

// Behind all levels: shadow requests, whose answers no client gets. Clients
// cannot ask for it.
inline constexpr int32_t kLowestPriority = -1;

// Of one priority level.
struct QueuePolicy {
  TimeoutAction timeout_action = TimeoutAction::kReject;
  Clock::Duration default_timeout{0};   // in the queue; 0: none
  bool allow_timeout_override = false;  // by a request's shorter one
  int32_t max_queue_size = 0;           // of this level; 0: no limit of its own
};

struct BatchingOptions {
  // Rows computed together at most: a request of n rows counts n. 1: each
  // request is computed by itself.
  int32_t max_batch_size = 1;
  // Refuses a request of more rows than max_batch_size, as Triton does; else
  // it is computed by itself.
  bool refuse_larger = false;
  // A batch that is not full waits so long for more requests, counted from the
  // arrival of its oldest one. 0: an idle instance takes what is there.
  Clock::Duration max_queue_delay{0};
  // Sizes that are sent at once when they are reached; ascending.
  std::vector<int32_t> preferred_batch_sizes = {};
  // Results are given out in the order in which requests came.
  bool preserve_ordering = false;
  // Levels 1 (first) to priority_levels; 0: no levels. A request of level 0 or
  // of one that does not exist has default_priority_level.
  int32_t priority_levels = 0;
  int32_t default_priority_level = 0;
  QueuePolicy default_queue_policy = {};
  std::map<int32_t, QueuePolicy> priority_queue_policies = {};  // by level

  int32_t LevelOf(int32_t priority) const {
    if (priority_levels == 0) return 0;
    if (priority == kLowestPriority) return priority_levels;
    return priority < 1 || priority > priority_levels ? default_priority_level
                                                      : priority;
  }
  const QueuePolicy& PolicyOf(int32_t level) const {
    const auto found = priority_queue_policies.find(level);
    return found == priority_queue_policies.end() ? default_queue_policy
                                                  : found->second;
  }
};

}  // namespace millrace::scheduler
