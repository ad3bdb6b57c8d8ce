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

// The CPUs of each NUMA node apart. Those of one node need not have numbers
// that follow each other.
std::vector<config::CpuSet> ByNode(const config::CpuSet& cpus,
                                   const config::Topology& topology);

// The CPUs of each of `count` instances of a model whose CPUs are given by NUMA
// node. An instance stays on one node where there are as many instances as
// nodes, each node has instances in proportion to its CPUs, and those of one
// node differ by one CPU at most; fewer instances get whole nodes. Instances
// beyond the CPUs share them, one each.
std::vector<config::CpuSet> InstanceTeams(
    const std::vector<config::CpuSet>& nodes, int64_t count);

}  // namespace millrace::server
