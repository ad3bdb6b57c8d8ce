// One thread of the client. It sends its share of a phase's requests and
// records how each ended: exactly one record a request.
//
//   RunStats stats = worker->Run(phase, progress);
//
// A closed loop keeps `concurrency` conversations under way over all threads.
// An open loop sends each request when it is due; while all connections are
// taken, requests wait in order and their waiting counts.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "config/base/status.h"
#include "loadtest/options.h"
#include "loadtest/recorder.h"
#include "loadtest/requests.h"

namespace millrace::loadtest {

struct Phase {
  bool open_loop = false;
  int64_t concurrency = 1;  // closed loop
  ArrivalSpec arrivals;     // open loop
  int64_t max_connections = 1024;
  int64_t num_requests = -1;  // conversations; -1: no limit
  int64_t first_index = 0;    // of the first conversation
  Time start = {};
  Time stop = Time::max();  // nothing is due from then on
  // After the last request was due, those under way have so long; no limit
  // but the request time-out where the phase has no stop.
  std::chrono::nanoseconds grace{0};
};

enum class StopLevel : int { kNone, kSendNoMore, kAbort };

// What the threads of a phase share. Relaxed atomics: counters and a flag that
// is looked at often; nothing else is published through them.
struct Progress {
  std::atomic<int64_t> next{0};  // closed loop: the next conversation
  std::atomic<int64_t> ok{0};
  std::atomic<int64_t> failed{0};
  std::atomic<int64_t> output_tokens{0};
  std::atomic<int64_t> in_flight{0};
  std::atomic<StopLevel> stop{StopLevel::kNone};

  void Count(const RequestRecord& record);
};

struct WorkerSetup {
  const Options* options = nullptr;  // outlive the worker
  const Requests* requests = nullptr;
  int64_t thread_index = 0;
};

class Worker {
 public:
  virtual ~Worker() = default;

  // Blocks until every request of its share has ended. Connections stay open
  // for the next phase. Called by one thread at a time.
  virtual RunStats Run(const Phase& phase, Progress& progress) = 0;
};

StatusOr<std::unique_ptr<Worker>> MakeHttpWorker(const WorkerSetup& setup);
StatusOr<std::unique_ptr<Worker>> MakeGrpcWorker(const WorkerSetup& setup);

// The share of a thread in `total` things.
int64_t ShareOf(int64_t total, int64_t thread_index, int64_t num_threads);

struct Ticket {
  int64_t index = 0;  // of the conversation
  Time intended = {};
};

// Hands a thread its requests of an open loop: every num_threads-th arrival.
class ArrivalShare {
 public:
  ArrivalShare(const Phase& phase, int64_t thread_index, int64_t num_threads);
  std::optional<Ticket> Next();

 private:
  const Phase& phase_;
  Arrivals arrivals_;
  const int64_t thread_index_;
  const int64_t num_threads_;
  int64_t index_ = 0;
};

// The next conversation of a closed loop, if the phase is not over.
std::optional<Ticket> NextTurnOf(const Phase& phase, Progress& progress);

}  // namespace millrace::loadtest
