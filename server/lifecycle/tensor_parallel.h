// A language model that several processes serve together (tensor parallel):
// rank 0 is the server, the others compute their part of each of its steps.
#pragma once

#include <cstdint>
#include <memory>

#include "config/base/status.h"
#include "config/schema.h"
#include "config/topology.h"
#include "models/group/group.h"

namespace millrace::server {

// What the settings want: 1 where no group is. INVALID_ARGUMENT or
// UNIMPLEMENTED for settings that a group cannot serve; each names the one.
StatusOr<int64_t> TensorParallelSize(const config::Settings& settings);

// CPUs of this rank's team. `leased` is what it would take alone: where several
// ranks of one machine may use the same cores, these are divided among them;
// where mpirun bound each to its own, nothing changes. All ranks call it.
StatusOr<config::CpuSet> CoresOfRank(models::Group& group,
                                     const config::Topology& topology,
                                     const config::CommonSettings& common,
                                     const config::CpuSet& leased);

// Of a machine's memory what one of its ranks may take.
int64_t MemoryOfRank(const models::Group& group,
                     const config::Topology& topology);

// Loads this rank's part of the only model and follows rank 0 until it ends.
Status FollowRankZero(const config::Settings& settings,
                      const std::shared_ptr<models::Group>& group);

}  // namespace millrace::server
