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

// A graph whose rows are not proven independent is served without joining
// requests, whatever max_batch_size says. INVALID_ARGUMENT names the setting
// that contradicts another one or the graph: a max_batch_size that the graph
// does not take, a preferred size above it, a default level that does not
// exist.
StatusOr<scheduler::BatchingOptions> BatchingOf(
    const config::GraphSettings& settings,
    const models::graph::BatchAxis& axis);

// The CPUs of each of `count` instances: consecutive parts of the model's team,
// which differ by one CPU at most. Instances beyond the team's CPUs share them,
// one each.
std::vector<config::CpuSet> InstanceTeams(const config::CpuSet& team,
                                          int64_t count);

}  // namespace millrace::server
