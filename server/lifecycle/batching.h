// From a graph's settings to how its requests are batched.
#pragma once

#include <cstdint>
#include <vector>

#include "config/base/status.h"
#include "config/schema.h"
#include "config/topology.h"
#include "models/graph/batch_axis.h"
#include "scheduler/batching_options.h"

namespace millrace::server {

// INVALID_ARGUMENT names the setting that contradicts another one or the graph:
// a max_batch_size above 1 for a graph whose rows cannot be joined, a preferred
// size above max_batch_size, a default level that does not exist.
StatusOr<scheduler::BatchingOptions> BatchingOf(
    const config::GraphSettings& settings,
    const models::graph::BatchAxis& axis);

// The CPUs of each of `count` instances: consecutive parts of the model's team,
// which differ by one CPU at most. Instances beyond the team's CPUs share them,
// one each.
std::vector<config::CpuSet> InstanceTeams(const config::CpuSet& team,
                                          int64_t count);

}  // namespace millrace::server
