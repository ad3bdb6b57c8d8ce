// From settings to a servable: reads the model, starts its engine or batcher,
// makes its handler. The one place that knows how a language model is put
// together; graphs are put together beside it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/base/metrics.h"
#include "config/base/status.h"
#include "config/schema.h"
#include "config/topology.h"
#include "handlers/pool.h"
#include "server/lifecycle/servable.h"

namespace millrace::server {

// The CPUs of each model's compute team, in the order of `models`: disjoint
// while there are cores enough, else shared. With four physical cores or more
// one is left to sockets and handlers.
std::vector<config::CpuSet> PlanTeams(
    const config::Topology& topology,
    const std::vector<config::ModelSettings>& models);

// Blocks for the load. Errors name the file.
StatusOr<std::shared_ptr<Servable>> LoadServable(
    const config::ModelSettings& settings, const std::string& version,
    const config::CpuSet& team, int64_t memory_limit_bytes,
    handlers::Pool* pool, MetricRegistry* metrics,
    std::function<void(double)> progress);

}  // namespace millrace::server
