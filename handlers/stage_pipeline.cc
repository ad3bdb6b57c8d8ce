// One lock for all stages: it is taken a few times for each micro-batch, which
// takes milliseconds. The inference stage has no thread of its own: the thread
// that frees one of its places starts the next micro-batch.
#include "handlers/stage_pipeline.h"

#include <utility>

#include "config/base/log.h"
#include "config/topology.h"

namespace millrace::handlers {
namespace {

// They float over all cores, as the handler pool does: the compute teams are
// the ones pinned.
void NameThread(const std::string& name) {
  const Status named = config::PinThisThread({}, name);
  if (!named.ok()) {
    LogWarning("pipeline thread has no name", {{"why", named.ToString()}});
  }
}

}  // namespace

StagePipeline::StagePipeline(StagePipelineOptions options,
                             MetricRegistry* registry)
    : options_(std::move(options)) {
  if (registry != nullptr) {
    const MetricLabels labels = {{"model", options_.model}};
    waiting_gauge_ =
        registry->AddGauge("millrace_micro_batches_waiting",
                           "Micro-batches that wait to be prepared.", labels);
    done_counter_ = registry->AddCounter(
        "millrace_micro_batches_total",
        "Micro-batches that went through all stages.", labels);
    on_scrape_ = registry->OnScrape([this] {
      MutexLock lock(mu_);
      waiting_gauge_.Set(static_cast<double>(waiting_.size()));
    });
  }
  for (int64_t i = 0; i < options_.stages.preprocess; ++i) {
    threads_.emplace_back([this, i] {
      NameThread("preprocess-" + std::to_string(i));
      RunPreprocess();
    });
  }
  for (int64_t i = 0; i < options_.stages.postprocess; ++i) {
    threads_.emplace_back([this, i] {
      NameThread("postprocess-" + std::to_string(i));
      RunPostprocess();
    });
  }
}

StagePipeline::~StagePipeline() {
  on_scrape_.reset();
  {
    MutexLock lock(mu_);
    stopping_ = true;
    may_prepare_.NotifyAll();
    may_finish_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

Status StagePipeline::CheckPlace() const {
  if (static_cast<int64_t>(waiting_.size()) < options_.max_waiting) {
    return OkStatus();
  }
  return ResourceExhausted("the model '" + options_.model + "' has " +
                           std::to_string(waiting_.size()) +
                           " micro-batches waiting and takes no more beyond " +
                           std::to_string(options_.max_waiting) +
                           "; try again later or raise max_queue_size")
      .Because("queue_full")
      .RetryAfterMs(1000);
}

Status StagePipeline::HasPlace() const {
  MutexLock lock(mu_);
  return CheckPlace();
}

Status StagePipeline::Submit(Batches batches) {
  MutexLock lock(mu_);
  RETURN_IF_ERROR(CheckPlace());
  for (std::shared_ptr<MicroBatch>& batch : batches) {
    waiting_.push_back(std::move(batch));
  }
  may_prepare_.NotifyAll();
  return OkStatus();
}

StagePipeline::Batches StagePipeline::TakeReady() {
  Batches batches;
  const config::MicroBatchingSettings& stages = options_.stages;
  while (!ready_.empty() && num_computing_ < stages.inference &&
         static_cast<int64_t>(computed_.size()) < 2 * stages.postprocess) {
    batches.push_back(std::move(ready_.front()));
    ready_.pop_front();
    ++num_computing_;
    may_prepare_.NotifyOne();
  }
  return batches;
}

void StagePipeline::Infer(const Batches& batches) {
  for (const std::shared_ptr<MicroBatch>& batch : batches) {
    // Once it stands among those computed, its request may end and this go.
    batch->Infer([this, batch] {
      Batches next;
      {
        MutexLock lock(mu_);
        --num_computing_;
        computed_.push_back(batch);
        may_finish_.NotifyOne();
        next = TakeReady();
      }
      if (!next.empty()) Infer(next);
    });
  }
}

void StagePipeline::RunPreprocess() {
  const config::MicroBatchingSettings& stages = options_.stages;
  while (true) {
    std::shared_ptr<MicroBatch> batch;
    {
      MutexLock lock(mu_);
      while (!stopping_ &&
             (waiting_.empty() ||
              static_cast<int64_t>(ready_.size()) + num_preparing_ >=
                  stages.preprocess + stages.inference)) {
        may_prepare_.Wait(mu_);
      }
      if (stopping_) return;
      batch = std::move(waiting_.front());
      waiting_.pop_front();
      ++num_preparing_;
    }
    const bool is_ready = batch->Preprocess();
    Batches next;
    {
      MutexLock lock(mu_);
      --num_preparing_;
      if (is_ready) {
        ready_.push_back(std::move(batch));
        next = TakeReady();
      } else {
        may_prepare_.NotifyOne();
      }
    }
    Infer(next);
  }
}

void StagePipeline::RunPostprocess() {
  while (true) {
    std::shared_ptr<MicroBatch> batch;
    Batches next;
    {
      MutexLock lock(mu_);
      while (!stopping_ && computed_.empty()) may_finish_.Wait(mu_);
      if (stopping_) return;
      batch = std::move(computed_.front());
      computed_.pop_front();
      next = TakeReady();
    }
    Infer(next);
    done_counter_.Add();
    batch->Postprocess();
  }
}

}  // namespace millrace::handlers
