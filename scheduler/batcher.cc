// The queue decides, this computes: the thread takes a batch, ends what was
// dropped, runs the rest, and ends each request with its part.
#include "scheduler/batcher.h"

#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "config/base/log.h"
#include "config/topology.h"
#include "scheduler/admission.h"
#include "scheduler/batch_queue.h"
#include "scheduler/batcher_metrics.h"

namespace millrace::scheduler {
namespace {

using models::TensorSpec;
using models::graph::Executor;
using models::graph::Port;

std::vector<TensorSpec> SpecsOf(
    const std::vector<Port>& ports,
    const std::vector<models::graph::Symbol>& symbols) {
  std::vector<TensorSpec> specs;
  for (const Port& port : ports) {
    TensorSpec& spec = specs.emplace_back();
    spec.name = port.name;
    spec.dtype = port.dtype;
    spec.rank_known = port.rank_known;
    for (const models::graph::PortDim& dim : port.dims) {
      spec.dims.push_back(dim.symbol < 0 ? dim.size : -1);
    }
    spec.text = models::graph::PortText(port, symbols);
  }
  return specs;
}

class BatcherImpl final : public Batcher {
 public:
  BatcherImpl(std::unique_ptr<Executor> executor, const BatcherOptions& options,
              MetricRegistry* registry, std::vector<models::Tensor> warm_up)
      : options_(options),
        inputs_(SpecsOf(executor->inputs(), executor->symbols())),
        outputs_(SpecsOf(executor->outputs(), executor->symbols())),
        executor_(std::move(executor)),
        metrics_(registry ? BatcherMetrics(*registry, options.model)
                          : BatcherMetrics()),
        admission_(Admission::Create({
            .model = options.model,
            .max_num_seqs = 1,
            .max_num_seqs_name = "max_batch_size",
            .max_queue_size = options.max_queue_size,
            .clock = options.clock,
            .queue_full = metrics_.refused_queue_full,
            .deadline = metrics_.refused_deadline,
            .draining = metrics_.refused_draining,
        })),
        queue_(std::make_shared<BatchQueue>(options.clock)) {
    if (registry != nullptr) {
      scrape_ = registry->OnScrape(
          [metrics = metrics_, queue = queue_] { SetGauges(metrics, *queue); });
    }
    std::promise<void> warm;
    std::future<void> is_warm = warm.get_future();
    thread_ = std::thread(
        [this, warm = std::move(warm), inputs = std::move(warm_up)]() mutable {
          WarmUp(std::exchange(inputs, {}));
          warm.set_value();
          Run();
        });
    is_warm.wait();
  }

  ~BatcherImpl() override {
    admission_->Drain();
    CloseAndJoin();
    scrape_.reset();
    SetGauges(metrics_, *queue_);
  }

  StatusOr<Reservation> Reserve(Clock::Time deadline) override {
    StatusOr<Reservation> place = admission_->Reserve(deadline);
    if (!place.ok()) metrics_.Refused();
    return place;
  }

  Status Submit(Reservation place, BatchTask task) override {
    if (!place) {
      return FailedPrecondition("a task is submitted with a place of Reserve");
    }
    RETURN_IF_ERROR(models::graph::CheckInputs(
        executor_->inputs(), executor_->symbols(), task.inputs));
    auto job = std::make_unique<BatchJob>();
    job->submitted = options_.clock->Now();
    if (task.trace) task.trace->Stamp(Stage::kSubmitted, job->submitted);
    job->task = std::move(task);
    job->place = std::move(place);
    return queue_->Post(std::move(job));
  }

  bool Drain(std::chrono::steady_clock::time_point deadline) override {
    admission_->Drain();
    const bool by_itself = admission_->WaitEmpty(deadline);
    CloseAndJoin();
    return by_itself;
  }

  const std::vector<TensorSpec>& inputs() const override { return inputs_; }
  const std::vector<TensorSpec>& outputs() const override { return outputs_; }

 private:
  static void SetGauges(const BatcherMetrics& metrics,
                        const BatchQueue& queue) {
    metrics.running.Set(queue.running());
    metrics.waiting.Set(queue.waiting());
    metrics.nv_pending.Set(queue.waiting());
  }

  void CloseAndJoin() {
    queue_->Close();
    std::call_once(joined_, [this] { thread_.join(); });
  }

  // ---- batcher thread ----

  void WarmUp(const std::vector<models::Tensor>& inputs) {
    // The executor pins its worker 0, which is this thread; here only a name.
    if (Status named = config::PinThisThread({}, "batcher"); !named.ok()) {
      LogWarning("batcher thread has no name", {{"status", named.ToString()}});
    }
    if (inputs.empty()) return;
    const auto outputs = executor_->Run(inputs);
    if (outputs.ok()) return;
    LogWarning(
        "warm-up failed; the first request will take longer",
        {{"model", options_.model}, {"status", outputs.status().ToString()}});
  }

  void Run() {
    while (true) {
      BatchQueue::Batch batch = queue_->Take();
      for (auto& job : batch.dropped) Drop(*job, batch.last);
      batch.dropped.clear();
      if (batch.last) return;
      for (auto& job : batch.jobs) Compute(*job, batch.closed);
    }
  }

  void Compute(BatchJob& job, BatchClosed closed) {
    const Clock::Time began = options_.clock->Now();
    if (job.task.trace) job.task.trace->Stamp(Stage::kScheduled, began);
    metrics_.Began(began - job.submitted);
    StatusOr<std::vector<models::Tensor>> outputs = executor_->Run(
        job.task.inputs, {.stopped = [&] { return Stopped(job); }});
    metrics_.Computed(1, closed, options_.clock->Now() - began);
    admission_->CountCompletion();
    if (!outputs.ok()) return End(job, std::move(outputs).status());
    End(job, BatchAnswer{.outputs = std::move(outputs).value(),
                         .batch_size = 1,
                         .closed = closed});
  }

  // Asked between the steps of a run.
  Status Stopped(const BatchJob& job) const {
    if (job.task.stop.stop_requested()) {
      return Cancelled("the client left while its request was computed");
    }
    if (job.task.deadline <= options_.clock->Now()) {
      return DeadlineExceeded("the deadline passed while model '" +
                              options_.model +
                              "' computed the request; give it more time");
    }
    return OkStatus();
  }

  void Drop(BatchJob& job, bool closing) {
    const BatchTask& task = job.task;
    if (task.stop.stop_requested()) {
      return End(job, Cancelled("the client left before its request began"));
    }
    const Clock::Duration waited = options_.clock->Now() - job.submitted;
    if (task.deadline <= job.submitted + waited) {
      return End(
          job,
          DeadlineExceeded(
              "the deadline passed after the request had waited " +
              std::to_string(
                  std::chrono::duration_cast<std::chrono::milliseconds>(waited)
                      .count()) +
              " ms in the queue of model '" + options_.model +
              "'; give it more time or send it later"));
    }
    CHECK(closing, "a request leaves the queue for a reason");
    End(job, Unavailable("model '" + options_.model +
                         "' was drained before the request began"));
  }

  void End(BatchJob& job, StatusOr<BatchAnswer> answer) {
    metrics_.Ended(answer.status(), options_.clock->Now() - job.submitted);
    job.task.done(std::move(answer));
    job.place.Release();
  }

  // Constant after construction.
  const BatcherOptions options_;
  const std::vector<TensorSpec> inputs_;
  const std::vector<TensorSpec> outputs_;

  // Ports and symbols are constant; Run is the batcher thread's.
  const std::unique_ptr<Executor> executor_;

  // Thread-safe, each. The queue is shared with the scrape.
  const BatcherMetrics metrics_;
  const std::shared_ptr<Admission> admission_;
  const std::shared_ptr<BatchQueue> queue_;
  std::shared_ptr<void> scrape_;

  std::once_flag joined_;
  std::thread thread_;
};

}  // namespace

std::string_view BatchClosedName(BatchClosed closed) {
  switch (closed) {
    case BatchClosed::kFull:
      return "full";
    case BatchClosed::kPreferred:
      return "preferred";
    case BatchClosed::kDelay:
      return "delay";
    case BatchClosed::kMismatch:
      return "mismatch";
  }
  return "";
}

std::unique_ptr<Batcher> Batcher::Create(std::unique_ptr<Executor> executor,
                                         const BatcherOptions& options,
                                         MetricRegistry* registry,
                                         std::vector<models::Tensor> warm_up) {
  return std::make_unique<BatcherImpl>(std::move(executor), options, registry,
                                       std::move(warm_up));
}

}  // namespace millrace::scheduler
