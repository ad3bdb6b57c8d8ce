// The thread lends the model, asks it, waits, and lets go of it here: no model
// is unloaded on a thread of its own.
#include "handlers/shadow/shadow_runner.h"

#include <algorithm>
#include <utility>

#include "config/base/clock.h"
#include "config/base/log.h"
#include "config/topology.h"
#include "handlers/shadow/compare_outputs.h"
#include "scheduler/batcher.h"

namespace millrace::handlers {
namespace {

// Never a model's name.
constexpr const char* kCaller = "(shadow)";

// One answer that a thread waits for. Shared with the model that gives it.
struct Waited {
  Mutex mu;
  CondVar changed;
  bool there GUARDED_BY(mu) = false;
  StatusOr<TensorResponse> answer GUARDED_BY(mu) = Internal("no answer");
};

}  // namespace

ShadowCounts::ShadowCounts(MetricRegistry& registry,
                           const MetricLabels& labels) {
  const auto counter = [&](const char* result) {
    MetricLabels of_result = labels;
    of_result["result"] = result;
    return registry.AddCounter(
        "millrace_shadow_requests_total",
        "Requests that were chosen to be computed by a shadow as well: equal "
        "within the tolerance, different, failed (the shadow gave no answer), "
        "dropped (too many waited).",
        of_result);
  };
  equal = counter("equal");
  different = counter("different");
  failed = counter("failed");
  dropped = counter("dropped");
  largest = registry.AddGauge(
      "millrace_shadow_largest_difference",
      "The largest difference of two numbers between the real answer and the "
      "shadow's since the load.",
      labels);
}

ShadowRunner::ShadowRunner(ModelLender* lender)
    : lender_(lender), thread_([this] {
        const Status named = config::PinThisThread({}, "shadow");
        if (!named.ok()) {
          LogWarning("shadow thread has no name", {{"why", named.ToString()}});
        }
        Run();
      }) {}

ShadowRunner::~ShadowRunner() { Stop(); }

bool ShadowRunner::TryEnter() {
  MutexLock lock(mu_);
  if (stopping_ || num_entered_ == kMaxJobs) return false;
  ++num_entered_;
  return true;
}

void ShadowRunner::Leave() {
  MutexLock lock(mu_);
  --num_entered_;
}

void ShadowRunner::Post(ShadowJob job) {
  MutexLock lock(mu_);
  if (stopping_) return;
  jobs_.push_back(std::move(job));
  changed_.NotifyOne();
}

void ShadowRunner::Stop() {
  stop_.request_stop();
  {
    MutexLock lock(mu_);
    stopping_ = true;
    jobs_.clear();
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void ShadowRunner::Run() {
  while (true) {
    ShadowJob job;
    {
      MutexLock lock(mu_);
      while (jobs_.empty() && !stopping_) changed_.Wait(mu_);
      if (stopping_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    Compute(job);
    Leave();
  }
}

void ShadowRunner::Compute(const ShadowJob& job) {
  // Held until the answer has been read.
  const StatusOr<LentModel> lent =
      lender_->Lend(kCaller, job.model, job.version);
  const StatusOr<TensorResponse> answer =
      lent.ok() ? Ask(*lent->handler, job) : lent.status();
  if (!answer.ok()) {
    job.counts->failed.Add();
    LogDebug("shadow gave no answer", {{"model", job.model},
                                       {"version", job.version},
                                       {"why", answer.status().message()}});
    return;
  }
  const OutputDifference difference =
      CompareOutputs(job.outputs, answer->outputs, job.tolerance);
  (difference.alike ? job.counts->equal : job.counts->different).Add();
  if (difference.largest > job.counts->largest.value()) {
    job.counts->largest.Set(difference.largest);
  }
}

StatusOr<TensorResponse> ShadowRunner::Ask(TensorHandler& handler,
                                           const ShadowJob& job) {
  TensorRequest request;
  for (const NamedTensor& input : job.inputs) {
    request.inputs.push_back({input.name, input.tensor.Share()});
  }
  request.outputs = job.output_names;
  request.priority = scheduler::kLowestPriority;
  request.deadline = Clock::Real().Now() + kTimeout;
  request.trace = std::make_shared<Trace>();
  const auto waited = std::make_shared<Waited>();
  handler.Start(
      std::move(request),
      [waited](StatusOr<TensorResponse> answer) {
        MutexLock lock(waited->mu);
        waited->answer = std::move(answer);
        waited->there = true;
        waited->changed.NotifyAll();
      },
      stop_.get_token());
  MutexLock lock(waited->mu);
  while (!waited->there) waited->changed.Wait(waited->mu);
  return std::move(waited->answer);
}

}  // namespace millrace::handlers
