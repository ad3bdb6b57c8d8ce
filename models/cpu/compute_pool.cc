// The team and its barrier. A wait goes through three moods: pause in place
// (other cores answer within a microsecond), yield the CPU (someone may need
// it to arrive at all: more workers than free CPUs), and after 200 µs park on
// a condition variable, which costs the waker 20-35 µs and the machine nothing.
//
// There is no counter of arrivals. Each worker owns a flag on its own cache
// line and writes the number of the phase it has finished; the others read it.
// So no line is written by two cores. Phases only grow, and a worker is at most
// one phase ahead of any other.

#include "models/cpu/compute_pool.h"

#include <sched.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "config/base/log.h"
#include "config/base/mutex.h"
#include "config/base/status.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace millrace::models {
namespace {

using std::chrono::steady_clock;

constexpr auto kPauseFor = std::chrono::microseconds(30);
constexpr auto kParkAfter = std::chrono::microseconds(200);
// Up to this team size everyone reads everyone's flag; above, worker 0 gathers
// and answers, which is two hops but not n².
constexpr int kFlatTeam = 8;

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

bool Reached(uint32_t value, uint32_t phase) {
  return static_cast<int32_t>(value - phase) >= 0;
}

// Best effort: a container may forbid it, and the step is right all the same.
void NameAndPin(const config::CpuSet& cpus, const std::string& name) {
  const Status pinned = config::PinThisThread(cpus, name);
  if (!pinned.ok()) {
    LogWarning("worker is not pinned",
               {{"worker", name}, {"why", pinned.message()}});
  }
}

struct alignas(64) Flag {
  std::atomic<uint32_t> value{0};
};

}  // namespace

struct ComputePool::Impl {
  Impl(const config::CpuSet& all_cpus, const char* team_name)
      : cpus(all_cpus),
        name(team_name),
        count(cpus.empty() ? 1 : static_cast<int>(cpus.size())),
        arrived(count),
        workers(count) {}

  // Constant after construction.
  const config::CpuSet cpus;
  const std::string name;
  const int count;

  // Written by their owner, read by all. Sequentially consistent against
  // `sleepers`: either the writer sees the sleeper or the sleeper the value.
  std::vector<Flag> arrived;  // last phase this worker finished
  Flag released;              // last phase worker 0 opened, large teams only
  Flag run;                   // number of the current Run
  Flag sleepers;              // workers parked or about to park
  std::atomic<bool> stop{false};

  Mutex mu;  // guards nothing but the moment between looking and sleeping
  CondVar wake;

  // Written by the caller before `run` moves on, read after.
  const std::function<void(Worker&)>* body = nullptr;

  std::vector<Worker> workers;  // each used by its own thread only
  std::vector<std::thread> threads;
  bool caller_pinned = false;  // caller only

  std::string WorkerName(int index) const {
    return name + "/" + std::to_string(index);
  }
  config::CpuSet WorkerCpu(int index) const {
    return cpus.empty() ? config::CpuSet{} : config::CpuSet{cpus[index]};
  }

  void Set(Flag& flag, uint32_t value) {
    flag.value.store(value, std::memory_order_seq_cst);
    if (sleepers.value.load(std::memory_order_seq_cst) == 0) return;
    MutexLock lock(mu);
    wake.NotifyAll();
  }

  void WaitUntil(const Flag& flag, uint32_t phase) {
    for (int i = 0; i < 256; ++i) {
      if (Reached(flag.value.load(std::memory_order_acquire), phase)) return;
      Pause();
    }
    const auto start = steady_clock::now();
    for (;;) {
      for (int i = 0; i < 32; ++i) {
        if (Reached(flag.value.load(std::memory_order_acquire), phase)) return;
        Pause();
      }
      const auto waited = steady_clock::now() - start;
      if (waited > kParkAfter) return Park(flag, phase);
      if (waited > kPauseFor) sched_yield();
    }
  }

  void Park(const Flag& flag, uint32_t phase) {
    MutexLock lock(mu);
    sleepers.value.fetch_add(1, std::memory_order_seq_cst);
    while (!Reached(flag.value.load(std::memory_order_seq_cst), phase)) {
      wake.Wait(mu);
    }
    sleepers.value.fetch_sub(1, std::memory_order_seq_cst);
  }

  void Barrier(int index, uint32_t phase) {
    Set(arrived[index], phase);
    if (count > kFlatTeam && index != 0) {
      WaitUntil(released, phase);
      return;
    }
    for (int i = 0; i < count; ++i) {
      if (i != index) WaitUntil(arrived[i], phase);
    }
    if (count > kFlatTeam) Set(released, phase);
  }

  void WorkerMain(int index) {
    NameAndPin(WorkerCpu(index), WorkerName(index));
    for (uint32_t next = 1;; ++next) {
      WaitUntil(run, next);
      if (stop.load(std::memory_order_relaxed)) return;  // after run: ordered
      (*body)(workers[index]);
      workers[index].Barrier();
    }
  }
};

std::pair<int64_t, int64_t> Worker::Share(int64_t n, int64_t unit) const {
  const int64_t units = (n + unit - 1) / unit;
  const int64_t begin = units * index_ / count_ * unit;
  const int64_t end = units * (index_ + 1) / count_ * unit;
  return {begin < n ? begin : n, end < n ? end : n};
}

void Worker::Barrier() {
  if (count_ > 1) pool_->impl_->Barrier(index_, ++phase_);
}

ComputePool::ComputePool(const config::CpuSet& cpus, const char* name)
    : impl_(std::make_unique<Impl>(cpus, name)) {
  for (int i = 0; i < impl_->count; ++i) {
    impl_->workers[i].pool_ = this;
    impl_->workers[i].index_ = i;
    impl_->workers[i].count_ = impl_->count;
  }
  for (int i = 1; i < impl_->count; ++i) {
    impl_->threads.emplace_back(
        [impl = impl_.get(), i] { impl->WorkerMain(i); });
  }
}

ComputePool::~ComputePool() {
  impl_->stop.store(true, std::memory_order_relaxed);  // published by run
  impl_->Set(impl_->run, impl_->run.value.load(std::memory_order_relaxed) + 1);
  for (std::thread& thread : impl_->threads) thread.join();
}

int ComputePool::size() const { return impl_->count; }

void ComputePool::Run(const std::function<void(Worker&)>& body) {
  if (!impl_->caller_pinned) {
    impl_->caller_pinned = true;
    NameAndPin(impl_->WorkerCpu(0), impl_->WorkerName(0));
  }
  impl_->body = &body;
  if (impl_->count > 1) {
    impl_->Set(impl_->run,
               impl_->run.value.load(std::memory_order_relaxed) + 1);
  }
  body(impl_->workers[0]);
  impl_->workers[0].Barrier();
  impl_->body = nullptr;
}

double ComputePool::MeasureBarrierNs() {
  constexpr int kRounds = 1000;
  double ns = 0;
  Run([&](Worker& worker) {
    for (int i = 0; i < kRounds / 10; ++i) worker.Barrier();
    const auto start = steady_clock::now();
    for (int i = 0; i < kRounds; ++i) worker.Barrier();
    if (worker.index() != 0) return;
    ns = std::chrono::duration<double, std::nano>(steady_clock::now() - start)
             .count() /
         kRounds;
  });
  return ns;
}

}  // namespace millrace::models
