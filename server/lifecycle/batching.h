// From a graph's settings to how its requests are batched.
#pragma once

#include <string>

#include "config/base/status.h"
#include "config/schema.h"
#include "scheduler/batching_options.h"

namespace millrace::server {

// Whether requests of a graph can be joined along their first dimension, and
// how many rows its inputs allow.
struct RowFacts {
  bool joinable = false;
  std::string why_not = {};  // a sentence without its full stop
  int64_t max_rows = 0;      // 0: no limit
};

// INVALID_ARGUMENT names the setting that contradicts another one or the graph:
// a max_batch_size above 1 for a graph whose rows cannot be joined, a preferred
// size above max_batch_size, a default level that does not exist.
StatusOr<scheduler::BatchingOptions> BatchingOf(
    const config::GraphSettings& settings, const RowFacts& rows);

}  // namespace millrace::server
