// The queue decides, this computes: each instance's thread takes a batch, ends
// what was dropped, runs the rest, and ends each request with its part.
#include "scheduler/batcher.h"

#include <algorithm>
#include <future>
#include <mutex>
#include <numeric>
#include <span>
#include <thread>
#include <utility>

#include "config/base/gate.h"
#include "config/base/log.h"
#include "config/base/mutex.h"
#include "config/topology.h"
#include "models/graph/ports.h"
#include "scheduler/admission.h"
#include "scheduler/batch_queue.h"
#include "scheduler/batch_refusals.h"
#include "scheduler/batch_runner.h"
#include "scheduler/batch_tensors.h"
#include "scheduler/batcher_metrics.h"
#include "scheduler/ordered_endings.h"

namespace millrace::scheduler {
namespace {

using models::Tensor;
using models::TensorSpec;
using models::graph::ExecutionContext;
using models::graph::Port;

// What the thread of a caller, which has other requests to read, may spend.
constexpr Clock::Duration kMoment = std::chrono::microseconds(100);
// How often a caller looks for an instance that other callers use; one of their
// runs takes a few microseconds.
constexpr int kLooks = 200;

MetricLabels LabelsOf(const BatcherOptions& options) {
  return ModelLabels(options.model, options.version);
}

class BatcherImpl final : public Batcher {
 public:
  BatcherImpl(std::vector<std::unique_ptr<ExecutionContext>> instances,
              const BatcherOptions& options, MetricRegistry* registry,
              std::vector<Inputs> warm_ups)
      : options_(options),
        ports_(instances.front()->inputs()),
        symbols_(instances.front()->symbols()),
        input_names_(NamesOf(ports_)),
        inputs_(SpecsOf(ports_, symbols_)),
        outputs_(SpecsOf(instances.front()->outputs(), symbols_)),
        warm_ups_(std::move(warm_ups)),
        runner_(options_.ragged, options_.jagged, options.clock, options.model,
                options.timeline),
        metrics_(registry ? BatcherMetrics(*registry, LabelsOf(options))
                          : BatcherMetrics()),
        admission_(Admission::Create({
            .model = options.model,
            .max_num_seqs = options.batching.max_batch_size *
                            static_cast<int32_t>(instances.size()),
            .max_num_seqs_name = "instances x max_batch_size",
            .max_queue_size = options.max_queue_size,
            .alike = true,
            .clock = options.clock,
            .queue_full = metrics_.refused_queue_full,
            .deadline = metrics_.refused_deadline,
            .draining = metrics_.refused_draining,
        })),
        queue_(std::make_shared<BatchQueue>(options.batching, options.clock)) {
    if (registry != nullptr) {
      const auto delay =
          std::chrono::duration<double>(options.batching.max_queue_delay);
      limits_ = ExportLimits(
          *registry, LabelsOf(options),
          {{"max_batch_size", options.batching.max_batch_size},
           {"max_queue_delay", delay.count()},
           {"instance_count", static_cast<double>(instances.size())}});
      scrape_ =
          registry->OnScrape([metrics = metrics_, queue = queue_,
                              statistics = statistics_, folded = folded_] {
            SetGauges(metrics, *queue);
            metrics.Fold(statistics->counts(), *folded);
          });
    }
    SetInstances(std::move(instances));
  }

  ~BatcherImpl() override {
    admission_->Drain();
    CloseAndJoin();
    scrape_.reset();
    SetGauges(metrics_, *queue_);
    metrics_.Fold(statistics_->counts(), *folded_);
  }

  StatusOr<Reservation> Reserve(Clock::Time deadline) override {
    StatusOr<Reservation> place = ReservePlace(deadline);
    if (!place.ok()) statistics_->Refused();
    return place;
  }

  Status Submit(Reservation place, BatchTask task) override {
    if (!place) {
      return FailedPrecondition("a task is submitted with a place of Reserve");
    }
    RETURN_IF_ERROR(options_.ragged.MakeMasks(task.inputs));
    if (task.keyed.has_value()) {
      RETURN_IF_ERROR(
          options_.jagged.TakeKeyed(*task.keyed, task.inputs, task.lengths));
      task.keyed.reset();
    }
    RETURN_IF_ERROR(options_.jagged.TakeLengths(task.lengths, task.inputs));
    RETURN_IF_ERROR(models::graph::CheckInputs(ports_, symbols_, task.inputs));
    auto job = std::make_unique<BatchJob>();
    const BatchingOptions& batching = options_.batching;
    if (batching.max_batch_size > 1) {
      ASSIGN_OR_RETURN(job->rows, options_.jagged.any()
                                      ? options_.jagged.RowsOf(task.inputs)
                                      : RowsOf(task.inputs, input_names_));
      if (batching.refuse_larger && job->rows > batching.max_batch_size) {
        return TooManyRows(job->rows, batching.max_batch_size, options_.model);
      }
    }
    job->submitted = options_.clock->Now();
    if (task.trace) task.trace->Stamp(Stage::kSubmitted, job->submitted);
    job->task = std::move(task);
    job->place = std::move(place);
    if (job->task.may_run_here && ComputeHere(job)) return OkStatus();
    if (batching.max_batch_size > 1) {
      job->kind = options_.ragged.KindOf(job->task.inputs);
    }
    const Status posted = queue_->Post(std::move(job));
    if (!posted.ok()) statistics_->Refused();
    return posted;
  }

  bool Drain(std::chrono::steady_clock::time_point deadline) override {
    admission_->Drain();
    const bool by_itself = admission_->WaitEmpty(deadline);
    CloseAndJoin();
    return by_itself;
  }

  void SetInstances(
      std::vector<std::unique_ptr<ExecutionContext>> contexts) override {
    CHECK(!contexts.empty(), "a batcher has an instance");
    const auto count = static_cast<int32_t>(contexts.size());
    std::vector<std::shared_ptr<Instance>> all;
    for (auto& context : contexts) all.push_back(StartInstance(&context));
    {
      MutexLock lock(mu_);
      std::swap(all, instances_);
    }
    admission_->SetMaxNumSeqs(options_.batching.max_batch_size * count);
    if (!limits_.empty()) limits_.back().Set(count);
    for (auto& leaving : all) leaving->stop.request_stop();
    queue_->Wake();
    for (auto& leaving : all) leaving->thread.join();
  }

  int32_t num_instances() const override {
    MutexLock lock(mu_);
    return static_cast<int32_t>(instances_.size());
  }

  Status sample_status() const override {
    MutexLock lock(mu_);
    return sample_status_;
  }
  BatchCounts counts() const override { return statistics_->counts(); }
  const BatchingOptions& batching() const override { return options_.batching; }
  bool MakesInput(size_t input) const override {
    return options_.ragged.IsMade(input);
  }
  bool IsJagged(size_t input) const override {
    return options_.jagged.IsPart(input);
  }
  const std::string& LengthsName(size_t input) const override {
    return options_.jagged.LengthsName(input);
  }
  const std::vector<TensorSpec>& inputs() const override { return inputs_; }
  const std::vector<TensorSpec>& outputs() const override { return outputs_; }

 private:
  using Jobs = std::vector<std::unique_ptr<BatchJob>>;

  // Shared with callers that compute with it while it is replaced.
  struct Instance {
    std::unique_ptr<ExecutionContext> context;
    std::mutex running;  // held while the context computes; callers try it
    std::stop_source stop;
    std::thread thread;
  };

  // Returns when it is warm.
  std::shared_ptr<Instance> StartInstance(
      std::unique_ptr<ExecutionContext>* context) {
    auto instance = std::make_shared<Instance>();
    instance->context = std::move(*context);
    std::promise<void> warm;
    std::future<void> is_warm = warm.get_future();
    instance->thread = std::thread(
        [this, warm = std::move(warm), it = instance.get()]() mutable {
          WarmUp(*it->context);
          warm.set_value();
          Run(*it, it->stop.get_token());
        });
    is_warm.wait();
    return instance;
  }

  static void SetGauges(const BatcherMetrics& metrics,
                        const BatchQueue& queue) {
    metrics.running.Set(queue.running());
    metrics.waiting.Set(queue.waiting());
  }

  StatusOr<Reservation> ReservePlace(Clock::Time deadline) {
    ASSIGN_OR_RETURN(Reservation place, admission_->Reserve(deadline));
    // Requests that run or wait already come first, this one among them.
    const int32_t in_use = admission_->in_use();
    if (deadline == kNever || in_use <= 1) return place;
    const Clock::Duration wait =
        queue_->row_time() * std::max(in_use / std::max(num_instances(), 1), 1);
    const Clock::Duration left = deadline - options_.clock->Now();
    if (wait <= left) return place;
    metrics_.refused_deadline.Add();
    return DeadlineTooNear(left, wait, options_.model);
  }

  void CloseAndJoin() {
    queue_->Close();
    std::call_once(joined_, [this] {
      here_.Close();
      here_.WaitEmpty(std::chrono::steady_clock::time_point::max());
      std::vector<std::shared_ptr<Instance>> all;
      {
        MutexLock lock(mu_);
        all = std::move(instances_);
      }
      for (auto& instance : all) instance->thread.join();
    });
  }

  // ---- threads of instances ----

  void WarmUp(ExecutionContext& context) {
    // The context pins its worker 0, which is this thread; here only a name.
    if (Status named = config::PinThisThread({}, "batcher"); !named.ok()) {
      LogWarning("batcher thread has no name", {{"status", named.ToString()}});
    }
    for (const Inputs& inputs : warm_ups_) {
      const auto outputs = context.Run(inputs);
      if (outputs.ok()) continue;
      LogWarning(
          "warm-up failed; the first request will take longer",
          {{"model", options_.model}, {"status", outputs.status().ToString()}});
    }
    if (options_.samples != nullptr) RunSamples(context);
  }

  void RunSamples(ExecutionContext& context) {
    for (const WarmUpSample& sample : *options_.samples) {
      for (int64_t i = 0; i < sample.count; ++i) {
        const auto outputs = context.Run(sample.inputs);
        if (outputs.ok()) continue;
        const Status failed = outputs.status().Prefixed(
            "model_warmup sample '" + sample.name + "'");
        LogWarning("a sample of model_warmup failed",
                   {{"model", options_.model}, {"status", failed.ToString()}});
        MutexLock lock(mu_);
        if (sample_status_.ok()) sample_status_ = failed;
        return;
      }
    }
  }

  void Run(Instance& instance, const std::stop_token& stop) {
    while (true) {
      BatchQueue::Batch batch = queue_->Take(stop);
      for (auto& [job, why] : batch.dropped) Drop(std::move(job), why);
      batch.dropped.clear();
      if (batch.last) return;
      if (!batch.jobs.empty()) Compute(instance, batch.jobs, batch.closed);
    }
  }

  void Compute(Instance& instance, Jobs& jobs, BatchClosed closed) {
    const Clock::Time began = options_.clock->Now();
    std::vector<int32_t> rows;
    for (const auto& job : jobs) {
      Begin(*job, began);
      rows.push_back(job->rows);
    }
    BatchResult common;
    common.batch_requests = static_cast<int32_t>(jobs.size());
    common.batch_rows = std::accumulate(rows.begin(), rows.end(), 0);

    auto parts = [&] {
      const std::lock_guard<std::mutex> lock(instance.running);
      return runner_.Run(*instance.context, jobs, rows, common.times);
    }();
    const Clock::Duration duration = options_.clock->Now() - began;
    const bool again = !parts.ok() && jobs.size() > 1;
    queue_->Done(again ? 0 : common.batch_requests, common.batch_rows,
                 duration);
    metrics_.Computed(common.batch_requests, closed, duration);
    statistics_->Computed(common.batch_rows, common.times);
    if (again) {
      for (auto& job : jobs) ComputeAlone(instance, std::move(job), closed);
      return;
    }
    for (size_t i = 0; i < jobs.size(); ++i) {
      admission_->CountCompletion(duration);
      if (!parts.ok()) {
        End(std::move(jobs[i]), parts.status());
        continue;
      }
      BatchResult result{.outputs = std::move((*parts)[i]),
                         .batch_rows = common.batch_rows,
                         .batch_requests = common.batch_requests,
                         .closed = closed,
                         .times = common.times};
      result.times.queue = began - jobs[i]->submitted;
      EndUnlessUnwanted(std::move(jobs[i]), std::move(result));
    }
    metrics_.Handed(options_.clock->Now() - began - common.times.compute_infer);
  }

  // A request of a batch that failed: it has its own result or error.
  void ComputeAlone(Instance& instance, std::unique_ptr<BatchJob> job,
                    BatchClosed closed) {
    Jobs one;
    one.push_back(std::move(job));
    Compute(instance, one, closed);
  }

  void Begin(const BatchJob& job, Clock::Time began) const {
    if (job.task.trace) job.task.trace->Stamp(Stage::kScheduled, began);
    metrics_.Began(began - job.submitted);
  }

  // On the caller's thread. False, and nothing has happened, where the queue
  // has to take the job.
  bool ComputeHere(std::unique_ptr<BatchJob>& job) {
    const BatchingOptions& batching = options_.batching;
    const bool waits =
        batching.max_batch_size > 1 && batching.max_queue_delay.count() > 0;
    if (waits || batching.preserve_ordering || runner_.is_told() ||
        !Unwanted(*job).ok()) {
      return false;
    }
    const Gate::Pass pass = here_.Enter();
    if (!pass || !queue_->TryBegin(job->rows, kMoment)) return false;
    const Clock::Time began = options_.clock->Now();
    StatusOr<Inputs> outputs = Inputs();
    if (!RunOnIdleInstance(job->task.inputs, &outputs)) {
      queue_->Abandon();
      return false;
    }
    const Clock::Duration duration = options_.clock->Now() - began;
    Begin(*job, began);
    BatchResult result;
    result.batch_rows = job->rows;
    result.ran_here = true;
    result.times = {.queue = began - job->submitted, .compute_infer = duration};
    queue_->Done(1, job->rows, duration);
    metrics_.Computed(1, result.closed, duration);
    statistics_->Computed(job->rows, result.times);
    admission_->CountCompletion(duration);
    const Status status = outputs.status();
    if (status.ok()) result.outputs = *std::move(outputs);
    End(std::move(job),
        status.ok() ? StatusOr<BatchResult>(std::move(result)) : status);
    metrics_.Handed(options_.clock->Now() - began - duration);
    return true;
  }

  // False where none is idle, or where Run has to compute it.
  bool RunOnIdleInstance(const Inputs& inputs, StatusOr<Inputs>* outputs) {
    std::vector<std::shared_ptr<Instance>> all;
    {
      MutexLock lock(mu_);
      all = instances_;
    }
    for (int look = 0; look < kLooks; ++look) {
      for (const std::shared_ptr<Instance>& each : all) {
        const std::unique_lock<std::mutex> lock(each->running,
                                                std::try_to_lock);
        if (lock) return each->context->RunIfTiny(inputs, outputs);
      }
    }
    return false;
  }

  // CANCELLED or DEADLINE_EXCEEDED where it need not be computed.
  Status Unwanted(const BatchJob& job) const {
    return WhyUnwanted(job, options_.clock->Now(), options_.model);
  }

  void EndUnlessUnwanted(std::unique_ptr<BatchJob> job, BatchResult result) {
    // A request alone was asked between the steps: it is answered.
    if (result.batch_requests > 1 && job->task.stop.stop_requested()) {
      Status unwanted = Unwanted(*job);
      return End(std::move(job), std::move(unwanted));
    }
    End(std::move(job), std::move(result));
  }

  void Drop(std::unique_ptr<BatchJob> job, BatchDrop why) {
    const Clock::Duration waited = options_.clock->Now() - job->submitted;
    End(std::move(job), DropStatus(why, waited, options_.model));
  }

  // Move-only results travel in a shared pointer, since endings may be kept.
  void End(std::unique_ptr<BatchJob> job, StatusOr<BatchResult> result) {
    const Clock::Duration total = options_.clock->Now() - job->submitted;
    statistics_->Ended(result.status(), total,
                       result.ok() ? result->times : BatchTimes{});
    // The place first: the ending may send the next request of its client,
    // which is not refused because of this one.
    if (!options_.batching.preserve_ordering) {
      job->place.Release();
      job->task.done(std::move(result));
      return;
    }
    const int64_t sequence = job->sequence;
    const auto kept = std::make_shared<
        std::pair<std::unique_ptr<BatchJob>, StatusOr<BatchResult>>>(
        std::move(job), std::move(result));
    endings_.End(sequence, [kept] {
      kept->first->place.Release();
      kept->first->task.done(std::move(kept->second));
    });
  }

  // Constant after construction.
  const BatcherOptions options_;
  const std::vector<Port> ports_;
  const std::vector<models::graph::Symbol> symbols_;
  const std::vector<std::string> input_names_;
  const std::vector<TensorSpec> inputs_;
  const std::vector<TensorSpec> outputs_;
  const std::vector<Inputs> warm_ups_;

  // Thread-safe, each.
  BatchRunner runner_;
  // Queue and statistics are shared with the scrape.
  const BatcherMetrics metrics_;
  const std::shared_ptr<BatchStatistics> statistics_ =
      std::make_shared<BatchStatistics>();
  OrderedEndings endings_;
  const std::shared_ptr<Admission> admission_;
  const std::shared_ptr<BatchQueue> queue_;
  // What metrics hold already: the scrape's, then the destructor's.
  const std::shared_ptr<BatchCounts> folded_ = std::make_shared<BatchCounts>();
  std::vector<Gauge> limits_;  // the last one: instances
  std::shared_ptr<void> scrape_;

  std::once_flag joined_;
  Gate here_;  // callers that compute
  mutable Mutex mu_;
  std::vector<std::shared_ptr<Instance>> instances_ GUARDED_BY(mu_);
  Status sample_status_ GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<Batcher> Batcher::Create(
    std::vector<std::unique_ptr<ExecutionContext>> instances,
    const BatcherOptions& options, MetricRegistry* registry,
    std::vector<Inputs> warm_ups) {
  CHECK(!instances.empty(), "a batcher has an instance");
  return std::make_unique<BatcherImpl>(std::move(instances), options, registry,
                                       std::move(warm_ups));
}

std::unique_ptr<Batcher> Batcher::Create(
    std::unique_ptr<ExecutionContext> instance, const BatcherOptions& options,
    MetricRegistry* registry, Inputs warm_up) {
  std::vector<std::unique_ptr<ExecutionContext>> instances;
  instances.push_back(std::move(instance));
  std::vector<Inputs> warm_ups;
  if (!warm_up.empty()) warm_ups.push_back(std::move(warm_up));
  return Create(std::move(instances), options, registry, std::move(warm_ups));
}

}  // namespace millrace::scheduler
