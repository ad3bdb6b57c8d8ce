// The handler pool: JSON, templates, tokenising and detokenising run here, off
// the sockets' threads and off the compute team.
//
//   if (!pool.TryPost(task)) return ResourceExhausted("...");
//
// Tasks are short. What one throws is logged and ends that task only; a task
// that owes an answer catches it itself. The queue is bounded: TryPost refuses
// new requests when it is full; Continue is for work that an accepted request
// still owes and always enters (its number is bounded by the places admission
// gave). Thread-safe. The destructor runs what is queued, then joins.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "config/base/mutex.h"
#include "config/base/timeline.h"
#include "config/topology.h"

namespace millrace::handlers {

class Pool {
 public:
  // `timeline` may be null; else it gets the tasks while a capture runs.
  Pool(int num_threads, size_t max_queued, const config::CpuSet& cpus,
       Timeline* timeline = nullptr);
  ~Pool();

  [[nodiscard]] bool TryPost(std::function<void()> task);
  void Continue(std::function<void()> task);

 private:
  void Run(int track);

  Timeline* const timeline_;
  const size_t max_queued_;
  Mutex mu_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ GUARDED_BY(mu_);
  bool stopping_ GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace millrace::handlers
