// The threads of a phase run on their own; the calling thread shows progress
// and waits for signals, which are blocked in all threads meanwhile.
#include "loadtest/session.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "loadtest/dataset.h"
#include "loadtest/fetch.h"
#include "loadtest/live_line.h"
#include "loadtest/server_stages.h"
#include "loadtest/synthetic.h"
#include "loadtest/tensors.h"

namespace millrace::loadtest {
namespace {

using std::chrono::nanoseconds;

// Time between the start of the threads and the first request that is due.
constexpr auto kHeadStart = std::chrono::milliseconds(20);

class BlockedSignals {
 public:
  BlockedSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;

  // Waits for at most `ms`; true if a signal came.
  bool Wait(int64_t ms) const {
    const timespec limit = {ms / 1000, ms % 1000 * 1'000'000};
    return sigtimedwait(&set_, nullptr, &limit) > 0;
  }

 private:
  sigset_t set_;
  sigset_t before_;
};

void SetUpThread(const Options& options, size_t index) {
  pthread_setname_np(pthread_self(), ("load-" + std::to_string(index)).c_str());
  prctl(PR_SET_TIMERSLACK, 1);  // wake at the time asked for, not 50 us later
  if (options.cpus.empty()) return;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(static_cast<size_t>(options.cpus[index % options.cpus.size()]),
          &cpus);
  pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
}

double ThreadCpuSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) * 1e-9;
}

// The first model that GET /v1/models lists.
StatusOr<std::string> FirstModel(const Options& options) {
  std::string path = options.url.prefix;
  if (!path.ends_with("/v1")) path += "/v1";
  ASSIGN_OR_RETURN(const FetchReply reply,
                   Fetch(options, "GET", path + "/models"));
  const auto body = nlohmann::json::parse(reply.body, nullptr, false);
  if (reply.status == 200 && body.is_object() && body.contains("data") &&
      body["data"].is_array() && !body["data"].empty() &&
      body["data"][0].is_object() && body["data"][0].contains("id") &&
      body["data"][0]["id"].is_string()) {
    return body["data"][0]["id"].get<std::string>();
  }
  return NotFound("GET " + path +
                  "/models lists no model; name one with "
                  "--model");
}

}  // namespace

Load LoadOf(const Options& options) {
  return {options.concurrency, options.arrivals.rate};
}

StatusOr<std::unique_ptr<Session>> Session::Open(const Options* options) {
  std::unique_ptr<Session> session(new Session(options));
  RETURN_IF_ERROR(session->Prepare());
  return session;
}

Status Session::Prepare() {
  model_ = options_.model;
  if (TakesText(options_.endpoint)) {
    if (model_.empty()) {
      ASSIGN_OR_RETURN(model_, FirstModel(options_));
    }
    ASSIGN_OR_RETURN(Dataset dataset,
                     MakeDataset(options_, model_, &lengths_estimated_));
    if (options_.arrivals.kind == ArrivalKind::kTrace) {
      ASSIGN_OR_RETURN(trace_, TraceOf(dataset, options_.arrivals.rate));
    }
    requests_ = MakeTextRequests(options_, model_, std::move(dataset));
  } else {
    ASSIGN_OR_RETURN(requests_, MakeTensorRequests(options_));
  }
  for (int64_t i = 0; i < options_.threads; ++i) {
    const WorkerSetup setup = {&options_, requests_.get(), i};
    StatusOr<std::unique_ptr<Worker>> worker =
        options_.endpoint == EndpointType::kKserveGrpc ? MakeGrpcWorker(setup)
                                                       : MakeHttpWorker(setup);
    if (!worker.ok()) return std::move(worker).status();
    workers_.push_back(std::move(worker).value());
  }
  return OkStatus();
}

Phase Session::PhaseOf(const Load& load) const {
  Phase phase;
  phase.open_loop = options_.open_loop;
  phase.concurrency = load.concurrency;
  phase.arrivals = options_.arrivals;
  phase.arrivals.rate = load.rate;
  phase.arrivals.trace = trace_;
  phase.max_connections = options_.max_connections;
  phase.grace = options_.grace;
  return phase;
}

StatusOr<Measurement> Session::Measure(const Load& load) {
  const BlockedSignals signals;
  Measurement result;
  if (options_.warmup_requests > 0 || options_.warmup_time.count() > 0) {
    Phase phase = PhaseOf(load);
    if (options_.warmup_requests > 0) {
      phase.num_requests = options_.warmup_requests;
    } else {
      phase.stop = Clock::now() + kHeadStart + options_.warmup_time;
    }
    Measurement unused;
    RunPhase(std::move(phase), "warm-up", unused);
    if (unused.interrupted) return Cancelled("interrupted during the warm-up");
  }
  const auto stages = ReadServerStages(options_, model_);
  for (int64_t i = 0; i < options_.repetitions && !result.interrupted; ++i) {
    Phase phase = PhaseOf(load);
    phase.num_requests = options_.num_requests;
    phase.arrivals.seed = options_.seed + static_cast<uint64_t>(i);
    if (options_.duration.count() > 0) {
      phase.stop = Clock::now() + kHeadStart + options_.duration;
    }
    result.runs.push_back(RunPhase(std::move(phase), "measuring", result));
    result.total.Merge(result.runs.back());
    result.seconds += result.runs.back().Seconds();
  }
  result.server_stages_ms =
      MeanStagesMs(stages, ReadServerStages(options_, model_));
  return result;
}

RunStats Session::RunPhase(Phase phase, const char* name,
                           Measurement& measurement) {
  const BlockedSignals signals;
  // Prompts of the phase before may still be in a cache; but the lines of a
  // trace belong to its times.
  const bool trace = phase.arrivals.kind == ArrivalKind::kTrace;
  phase.first_index = trace ? 0 : next_index_;
  phase.start = Clock::now() + kHeadStart;
  Progress progress;
  std::vector<RunStats> stats(workers_.size());
  std::vector<double> busy(workers_.size());
  std::atomic<size_t> running = workers_.size();
  std::vector<std::thread> threads;
  for (size_t i = 0; i < workers_.size(); ++i) {
    threads.emplace_back([&, i] {
      SetUpThread(options_, i);
      std::this_thread::sleep_until(phase.start - kHeadStart / 4);
      // A worker may be done before the first request was due.
      const auto awake = Clock::now();
      const double cpu = ThreadCpuSeconds();
      stats[i] = workers_[i]->Run(phase, progress);
      const std::chrono::duration<double> wall = Clock::now() - awake;
      busy[i] = (ThreadCpuSeconds() - cpu) / std::max(wall.count(), 1e-9);
      running.fetch_sub(1, std::memory_order_release);
    });
  }
  LiveLine line(options_.progress, name, phase, progress);
  while (running.load(std::memory_order_acquire) > 0) {
    if (signals.Wait(20)) {
      const bool first = !measurement.interrupted;
      measurement.interrupted = true;
      progress.stop.store(first ? StopLevel::kSendNoMore : StopLevel::kAbort,
                          std::memory_order_relaxed);
    }
    line.Update(Clock::now());
  }
  line.Clear();
  for (std::thread& thread : threads) thread.join();
  RunStats total;
  for (const RunStats& part : stats) total.Merge(part);
  next_index_ += total.num_requests();
  measurement.client_busy = std::max(
      measurement.client_busy, *std::max_element(busy.begin(), busy.end()));
  return total;
}

}  // namespace millrace::loadtest
