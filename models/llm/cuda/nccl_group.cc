// Some calls of NCCL wait for other ranks on the calling thread: connecting,
// the first operation of a kind, leaving. They are made on threads of their own
// that are left behind after the timeout; the process ends soon after that.
#include "models/llm/cuda/nccl_group.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "config/base/mutex.h"

namespace millrace::models {
namespace {

using Clock = std::chrono::steady_clock;

// NCCL chooses how it adds by size; these are those it has to be ready for.
constexpr int64_t kLeastWarmUp = 256;  // values
constexpr int64_t kMostWarmUp = 4 << 20;
// With some ten kernels between two operations, well below the 1024 launches
// that a stream's queue is known to hold.
constexpr int32_t kMostQueued = 24;
// A wait asks without pause at first, then lets others run, then sleeps.
constexpr int kAskWithoutPause = 2000;
constexpr auto kYieldFor = std::chrono::milliseconds(20);
constexpr auto kSleep = std::chrono::microseconds(200);
// How long ncclCommAbort may take to end what NCCL has running.
constexpr auto kAbortWithin = std::chrono::seconds(10);

// Runs `work` on a thread of its own. False: it has not ended within the time,
// and is left behind with what it captured.
bool RunWithin(std::chrono::milliseconds time, std::function<void()> work) {
  struct Shared {
    Mutex mu;
    CondVar changed;
    bool done GUARDED_BY(mu) = false;
  };
  const auto shared = std::make_shared<Shared>();
  std::thread thread([shared, work = std::move(work)] {
    pthread_setname_np(pthread_self(), "nccl");
    work();
    const MutexLock lock(shared->mu);
    shared->done = true;
    shared->changed.NotifyAll();
  });
  const Clock::time_point end = Clock::now() + time;
  bool done = false;
  {
    const MutexLock lock(shared->mu);
    while (!shared->done && Clock::now() < end) {
      shared->changed.WaitUntil(shared->mu, end);
    }
    done = shared->done;
  }
  if (done) {
    thread.join();
  } else {
    thread.detach();
  }
  return done;
}

struct Joined {
  CudaBuffer sums;
  Status status;
  NcclComm comm = nullptr;
  // No thread waits for the work any more. Relaxed: the flag guards no other
  // data.
  std::atomic<bool> left = false;
};

std::string AtRank(const NcclGroupOptions& options) {
  return " at rank " + std::to_string(options.rank) +
         " of the tensor-parallel group";
}

Status NcclFailed(const NcclGroupOptions& options, const std::string& what,
                  int error, NcclComm comm) {
  return Unavailable("NCCL failed to " + what + AtRank(options) + ": " +
                     options.library->TextOf(error, comm));
}

Status WarmUp(const NcclGroupOptions& options, const Joined& joined) {
  const NcclComm comm = joined.comm;
  const NcclLibrary& nccl = *options.library;
  CudaContext& context = *options.context;
  void* const stream = context.device().stream;
  auto* const values = joined.sums.as<float>();
  for (int64_t count = kLeastWarmUp; count <= kMostWarmUp; count *= 4) {
    const auto all = static_cast<size_t>(count);
    const size_t part = all / static_cast<size_t>(options.size);
    int error = nccl.all_reduce(values, values, all, kNcclFloat, kNcclSum, comm,
                                stream);
    if (error == kNcclSuccess) {
      error = nccl.all_gather(values + part * static_cast<size_t>(options.rank),
                              values, part, kNcclFloat, comm, stream);
    }
    if (error != kNcclSuccess) {
      return NcclFailed(options, "do a first sum", error, comm);
    }
  }
  while (!joined.left.load(std::memory_order_relaxed)) {
    ASSIGN_OR_RETURN(const bool ended, context.HasEnded());
    if (ended) return OkStatus();
    int error = kNcclSuccess;
    nccl.comm_get_async_error(comm, &error);
    if (error != kNcclSuccess && error != kNcclInProgress) {
      return NcclFailed(options, "do a first sum", error, comm);
    }
    std::this_thread::sleep_for(kSleep);
  }
  return Unavailable("left behind");
}

void Join(const NcclGroupOptions& options, Joined& joined) {
  joined.status = options.context->MakeCurrent();
  if (!joined.status.ok()) return;
  const int error = options.library->comm_init_rank(&joined.comm, options.size,
                                                    options.key, options.rank);
  joined.status = error == kNcclSuccess
                      ? WarmUp(options, joined)
                      : NcclFailed(options, "connect the GPU", error, nullptr);
}

}  // namespace

StatusOr<CudaBuffer> NcclGroup::Reserve(CudaContext& context) {
  return context.Allocate(kMostWarmUp * 4, "NCCL's first sums");
}

StatusOr<std::shared_ptr<NcclGroup>> NcclGroup::Connect(
    const NcclGroupOptions& options, CudaBuffer sums) {
  const auto joined = std::make_shared<Joined>();
  joined->sums = std::move(sums);
  const bool ended =
      RunWithin(options.timeout, [options, joined] { Join(options, *joined); });
  if (!ended) {
    joined->left.store(true, std::memory_order_relaxed);
    return Unavailable(
        "NCCL did not connect the GPU within " +
        std::to_string(options.timeout.count()) + " ms" + AtRank(options) +
        ": another rank hangs or cannot be reached; NCCL_DEBUG=WARN tells "
        "more, or raise tensor_parallel_timeout");
  }
  std::shared_ptr<NcclGroup> group(
      new NcclGroup(options, std::exchange(joined->comm, nullptr)));
  if (!joined->status.ok()) return group->Break(joined->status);
  return group;
}

NcclGroup::~NcclGroup() {
  if (comm_ == nullptr) return;
  // It waits until the others leave, too. Those that do not are no concern of a
  // rank that ends.
  RunWithin(std::min<std::chrono::milliseconds>(options_.timeout, kAbortWithin),
            [options = options_, comm = comm_] {
              if (!options.context->MakeCurrent().ok()) return;
              options.library->comm_destroy(comm);
            });
}

Status NcclGroup::Break(const Status& why) {
  if (!status_.ok()) return status_;
  status_ = why;
  if (comm_ == nullptr) return status_;
  RunWithin(kAbortWithin,
            [options = options_, comm = std::exchange(comm_, nullptr)] {
              if (!options.context->MakeCurrent().ok()) return;
              options.library->comm_abort(comm);
            });
  return status_;
}

Status NcclGroup::Judge(int error, const char* what) {
  if (error == kNcclSuccess) return OkStatus();
  return Break(NcclFailed(options_, what, error, comm_));
}

Status NcclGroup::KeepQueueShort() {
  if (options_.context->capturing() || ++queued_ <= kMostQueued) {
    return OkStatus();
  }
  return Wait();
}

Status NcclGroup::AllReduceSum(float* values, int64_t count) {
  RETURN_IF_ERROR(status_);
  RETURN_IF_ERROR(KeepQueueShort());
  return Judge(options_.library->all_reduce(
                   values, values, static_cast<size_t>(count), kNcclFloat,
                   kNcclSum, comm_, options_.context->device().stream),
               "add over the ranks");
}

Status NcclGroup::AllGather(const float* own, float* all, int64_t count) {
  RETURN_IF_ERROR(status_);
  RETURN_IF_ERROR(KeepQueueShort());
  return Judge(options_.library->all_gather(
                   own, all, static_cast<size_t>(count), kNcclFloat, comm_,
                   options_.context->device().stream),
               "gather from the ranks");
}

Status NcclGroup::Wait() {
  RETURN_IF_ERROR(status_);
  int asked = 0;
  Clock::time_point begun;
  while (true) {
    const StatusOr<bool> ended = options_.context->HasEnded();
    if (!ended.ok()) return Break(ended.status());
    if (*ended) {
      queued_ = 0;
      return OkStatus();
    }
    if (++asked < kAskWithoutPause) continue;
    const Clock::time_point now = Clock::now();
    if (asked == kAskWithoutPause) begun = now;
    int error = kNcclSuccess;
    options_.library->comm_get_async_error(comm_, &error);
    if (error != kNcclInProgress) {
      RETURN_IF_ERROR(Judge(error, "compute a step with the others"));
    }
    if (now - begun > options_.timeout) {
      return Break(Unavailable(
          "a step did not end within " +
          std::to_string(options_.timeout.count()) + " ms" + AtRank(options_) +
          ": another rank hangs or is lost; see its machine, or raise "
          "tensor_parallel_timeout"));
    }
    if (now - begun < kYieldFor) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(kSleep);
    }
  }
}

}  // namespace millrace::models
