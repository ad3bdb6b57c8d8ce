// Three stages of work that overlap: micro-batches are prepared on threads of
// one pool, computed somewhere else, and finished on threads of another pool.
//
//   RETURN_IF_ERROR(pipeline.Submit(std::move(micro_batches)));
//
// Each stage takes micro-batches in their order, so many at the same time as
// the options say. A stage whose successor is full waits: between Preprocess
// and Infer at most `preprocess + inference` micro-batches exist, between Infer
// and Postprocess `inference + 2 * postprocess`. What waits to be prepared is
// bounded by `max_waiting`; then Submit refuses.
//
// Thread-safe. Every micro-batch has gone through before the destructor.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "config/base/metrics.h"
#include "config/base/mutex.h"
#include "config/base/status.h"
#include "config/micro_batching_settings.h"

namespace millrace::handlers {

// Shared with the computation that is under way.
class MicroBatch {
 public:
  virtual ~MicroBatch() = default;
  // False: it has had its ending, no further stage follows.
  virtual bool Preprocess() = 0;
  // Starts the computation. `done` is called once, from any thread, maybe
  // before this returns.
  virtual void Infer(std::function<void()> done) = 0;
  virtual void Postprocess() = 0;
};

struct StagePipelineOptions {
  std::string model;  // label of metrics
  config::MicroBatchingSettings stages;
  int64_t max_waiting = 64;  // micro-batches; 64 more come in as one request
};

class StagePipeline {
 public:
  using Batches = std::vector<std::shared_ptr<MicroBatch>>;

  // `registry` may be null.
  StagePipeline(StagePipelineOptions options, MetricRegistry* registry);
  ~StagePipeline();

  // All of them or none. RESOURCE_EXHAUSTED when the queue is full.
  Status Submit(Batches batches);
  // What Submit would say now.
  Status HasPlace() const;

 private:
  void RunPreprocess();
  void RunPostprocess();
  // Those that may be computed now.
  Batches TakeReady() REQUIRES(mu_);
  // May be the last touch of a request, and so of this.
  void Infer(const Batches& batches);
  Status CheckPlace() const REQUIRES(mu_);

  const StagePipelineOptions options_;
  Gauge waiting_gauge_;
  Counter done_counter_;
  std::shared_ptr<void> on_scrape_;

  mutable Mutex mu_;
  CondVar may_prepare_;
  CondVar may_finish_;
  std::deque<std::shared_ptr<MicroBatch>> waiting_ GUARDED_BY(mu_);
  std::deque<std::shared_ptr<MicroBatch>> ready_ GUARDED_BY(mu_);
  std::deque<std::shared_ptr<MicroBatch>> computed_ GUARDED_BY(mu_);
  int64_t num_preparing_ GUARDED_BY(mu_) = 0;
  int64_t num_computing_ GUARDED_BY(mu_) = 0;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace millrace::handlers
