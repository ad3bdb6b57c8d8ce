// The thread lends the model, asks it, waits, and lets go of it here: no model
// is unloaded on a thread of its own.
#include "handlers/shadow/shadow_runner.h"

#include <algorithm>
#include <utility>

#include "config/base/clock.h"
#include "config/base/log.h"
#include "config/topology.h"
#include "handlers/shadow/shadow_text.h"
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

// The same of texts, each from a sink of its own.
struct WaitedTexts {
  explicit WaitedTexts(size_t count) : num_open(count), texts(count) {}

  Mutex mu;
  CondVar changed;
  size_t num_open GUARDED_BY(mu);
  std::vector<std::string> texts GUARDED_BY(mu);
  Status status GUARDED_BY(mu);  // of one that failed
};

class WaitedSink final : public GenerateSink {
 public:
  WaitedSink(std::shared_ptr<WaitedTexts> waited, size_t idx)
      : waited_(std::move(waited)), idx_(idx) {}

  void OnAccepted(const Usage&) override {}
  void OnDelta(OutputDelta delta) override { text_.Add(delta); }
  void OnEnd(GenerateEnd end) override {
    MutexLock lock(waited_->mu);
    waited_->texts[idx_] = text_.Take();
    if (!end.status.ok()) waited_->status = std::move(end.status);
    --waited_->num_open;
    waited_->changed.NotifyAll();
  }

 private:
  const std::shared_ptr<WaitedTexts> waited_;
  const size_t idx_;
  CollectedText text_;
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
  const StatusOr<OutputDifference> difference =
      job.text == nullptr ? CompareTensors(job) : CompareTexts(job);
  if (!difference.ok()) {
    job.counts->failed.Add();
    LogDebug("shadow gave no answer", {{"model", job.model},
                                       {"version", job.version},
                                       {"why", difference.status().message()}});
    return;
  }
  (difference->alike ? job.counts->equal : job.counts->different).Add();
  if (difference->largest > job.counts->largest.value()) {
    job.counts->largest.Set(difference->largest);
  }
}

StatusOr<OutputDifference> ShadowRunner::CompareTensors(const ShadowJob& job) {
  // Held until the answer has been read.
  ASSIGN_OR_RETURN(const LentModel lent,
                   lender_->Lend(kCaller, job.model, job.version));
  ASSIGN_OR_RETURN(const TensorResponse answer, Ask(*lent.handler, job));
  return CompareOutputs(job.outputs, answer.outputs, job.tolerance);
}

StatusOr<OutputDifference> ShadowRunner::CompareTexts(const ShadowJob& job) {
  ASSIGN_OR_RETURN(const LentText lent,
                   lender_->LendText(kCaller, job.model, job.version));
  ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                   Complete(*lent.handler, *job.text));
  return OutputDifference{.alike = texts == job.text->answers};
}

StatusOr<std::vector<std::string>> ShadowRunner::Complete(
    GenerateHandler& handler, const ShadowedText& text) {
  GenerateRequest request = text.request;
  request.options.priority = kLowestTextPriority;
  request.tenant = {};
  request.deadline = Clock::Real().Now() + kTextTimeout;
  request.trace = std::make_shared<Trace>();
  const auto waited = std::make_shared<WaitedTexts>(text.answers.size());
  std::vector<std::shared_ptr<GenerateSink>> sinks;
  for (size_t i = 0; i < text.answers.size(); ++i) {
    sinks.push_back(std::make_shared<WaitedSink>(waited, i));
  }
  handler.StartSiblings(std::move(request), std::move(sinks),
                        stop_.get_token());
  MutexLock lock(waited->mu);
  while (waited->num_open > 0) waited->changed.Wait(waited->mu);
  RETURN_IF_ERROR(waited->status);
  return std::move(waited->texts);
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
