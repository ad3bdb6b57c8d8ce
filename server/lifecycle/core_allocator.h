// Divides physical cores among models. Models take a team when they are loaded
// and give it back when they leave, while others go on serving.
//
//   CoreAllocator cores(topology);
//   cores.Reserve({{"a", 2}, {"b", 0}});          // all models of the start
//   auto lease = cores.Take({"a", 2});            // when "a" is loaded
//   ... lease->cpus() ...                         // given back when it dies
//
// Teams are disjoint while there are cores enough, else those with the fewest
// holders are shared; who holds one CPU of a core holds the core. With four
// physical cores or more one is left to sockets and handlers. All versions of a
// model have one team, so that a new version takes over the cores of the one it
// replaces. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/base/status.h"
#include "config/schema.h"
#include "config/topology.h"

namespace millrace::server {

struct CoreRequest {
  std::string owner;    // the model's id
  int64_t threads = 0;  // physical cores wanted; 0: a fair share
  // These CPUs and no others; empty: chosen.
  config::CpuSet cpus = {};
  int64_t numa_node = -1;  // to choose them from; -1: any
};

// What a model's settings ask for. INVALID_ARGUMENT for a list of CPUs that
// cannot be read.
StatusOr<CoreRequest> CoresFor(const config::ModelSettings& settings);

struct CoreHolder {
  std::string owner;
  config::CpuSet cpus;
};

class CoreAllocator {
  struct State;

 public:
  // Cores of one model. May outlive the allocator.
  class Lease {
   public:
    Lease(std::shared_ptr<State> state, CoreHolder holder, int64_t team)
        : state_(std::move(state)), holder_(std::move(holder)), team_(team) {}
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    // Ascending; one CPU of each core.
    const config::CpuSet& cpus() const { return holder_.cpus; }

   private:
    const std::shared_ptr<State> state_;
    const CoreHolder holder_;
    const int64_t team_;  // which team of that owner
  };

  explicit CoreAllocator(const config::Topology& topology);

  // INVALID_ARGUMENT for CPUs that this process may not use, and for a NUMA
  // node that has none of them.
  Status Check(const CoreRequest& request) const;

  // Divides the cores among models that are about to be loaded: each gets what
  // it asks for, or a fair share; those that name CPUs or a node first. Take
  // hands a reservation over.
  void Reserve(const std::vector<CoreRequest>& requests);

  // The cores reserved for the owner; else those that it holds already; else
  // what it asks for, of the cores with the fewest holders. One that asks for a
  // fair share gets all free cores, or one part in as many as there are owners.
  // The request has passed Check.
  std::shared_ptr<const Lease> Take(const CoreRequest& request);

  // What is held and what is reserved, each owner once, by owner.
  std::vector<CoreHolder> Holders() const;

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace millrace::server
