// Computes requests a second time on another version or model, compares the
// outputs with those that the client got, counts, and forgets them.
//
//   if (runner.TryEnter()) { ... runner.Post(std::move(job)); }
//
// One thread computes one request at a time, however many models have shadows:
// what a shadow takes from real requests is bounded by that. At most kMaxJobs
// wait; the others are dropped and counted. It outlives the models that post.
//
// Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "config/base/metrics.h"
#include "config/base/mutex.h"
#include "handlers/messages.h"
#include "handlers/model_lender.h"
#include "handlers/shadow/compare_outputs.h"

namespace millrace::handlers {

// Of one model's target; shared by its jobs.
struct ShadowCounts {
  ShadowCounts() = default;  // counts nothing
  ShadowCounts(MetricRegistry& registry, const MetricLabels& labels);

  Counter equal;      // within the tolerance
  Counter different;  // in numbers, names, types or shapes
  Counter failed;     // no answer to compare with
  Counter dropped;    // too many waited
  Gauge largest;      // difference of two numbers since the load
};

// A language model's request, and the text of each of its completions.
struct ShadowedText {
  GenerateRequest request;
  std::vector<std::string> answers;
};

struct ShadowJob {
  // What is computed with, and what is counted.
  std::string model;
  std::string version;
  double tolerance = 0;
  std::shared_ptr<const ShadowCounts> counts;
  // What the real request had and got; handles of shared bytes.
  std::vector<NamedTensor> inputs = {};
  std::vector<std::string> output_names = {};
  std::vector<NamedTensor> outputs = {};
  // Then there are no tensors; null: of a graph.
  std::shared_ptr<const ShadowedText> text = {};
};

class ShadowRunner {
 public:
  static constexpr int64_t kMaxJobs = 32;  // entered, not ended
  static constexpr auto kTimeout = std::chrono::seconds(30);  // of one request
  static constexpr auto kTextTimeout = std::chrono::seconds(300);

  // The lender is bound before the first job comes.
  explicit ShadowRunner(ModelLender* lender);
  ~ShadowRunner();

  // A place for one job, which Post or Leave gives back. False when full.
  bool TryEnter();
  void Leave();
  void Post(ShadowJob job);
  // Ends what runs, forgets what waits; nothing enters any more. Called before
  // the lender's models go.
  void Stop();

 private:
  void Run();
  void Compute(const ShadowJob& job);
  StatusOr<OutputDifference> CompareTensors(const ShadowJob& job);
  StatusOr<OutputDifference> CompareTexts(const ShadowJob& job);
  StatusOr<TensorResponse> Ask(TensorHandler& handler, const ShadowJob& job);
  StatusOr<std::vector<std::string>> Complete(GenerateHandler& handler,
                                              const ShadowedText& text);

  ModelLender* const lender_;
  std::stop_source stop_;
  Mutex mu_;
  CondVar changed_;
  std::deque<ShadowJob> jobs_ GUARDED_BY(mu_);
  int64_t num_entered_ GUARDED_BY(mu_) = 0;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace millrace::handlers
