// A pinned team of threads that runs one step's phases together. The caller is
// worker 0: no hand-off inside a step. Between phases stands a barrier that
// pauses, then yields the CPU, then parks; workers park for good between steps.
//
//   ComputePool pool(cpus);
//   pool.Run([&](Worker& worker) {
//     auto [begin, end] = worker.Share(num_items);   // static split
//     ...
//     worker.Barrier();
//     ...
//   });
//
// Run: one thread at a time, always the same (it pins itself at its first Run).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "config/topology.h"

namespace millrace::models {

class ComputePool;

class Worker {
 public:
  int index() const { return index_; }
  int count() const { return count_; }
  // This worker's contiguous part of [0, n), in whole multiples of `unit`.
  std::pair<int64_t, int64_t> Share(int64_t n, int64_t unit = 1) const;
  // All workers arrive before any leaves. No-op in a team of one.
  void Barrier();

 private:
  friend class ComputePool;
  ComputePool* pool_ = nullptr;
  int index_ = 0;
  int count_ = 1;
  uint32_t phase_ = 0;
};

class ComputePool {
 public:
  // One worker for each CPU; an empty set means one worker, not pinned.
  // `name` shows in top -H as name/0, name/1, …
  ComputePool(const config::CpuSet& cpus, const char* name);
  ~ComputePool();

  int size() const;
  // Runs the body on every worker and returns when all have returned.
  void Run(const std::function<void(Worker&)>& body);
  // Mean cost of one barrier in nanoseconds, measured now.
  double MeasureBarrierNs();

 private:
  friend class Worker;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::models
