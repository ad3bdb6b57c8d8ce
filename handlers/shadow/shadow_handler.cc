// Which requests are taken follows from their number alone: each target takes
// one whenever the sum of its shares passes a whole number.
#include "handlers/shadow/shadow_handler.h"

#include <atomic>
#include <cmath>
#include <utility>
#include <vector>

#include "handlers/forwarding_handler.h"
#include "models/tensor/strings.h"
#include "scheduler/batcher.h"

namespace millrace::handlers {
namespace {

// Millionths of requests, so that their sums are exact.
constexpr uint64_t kWhole = 1'000'000;

struct Target {
  config::ShadowTarget settings;  // the model filled in
  uint64_t share = kWhole;
  std::shared_ptr<const ShadowCounts> counts;
  // Relaxed: only that each request has a number of its own matters.
  std::atomic<uint64_t> next{0};

  bool Takes() {
    const uint64_t number = next.fetch_add(1, std::memory_order_relaxed);
    return (number + 1) * share / kWhole != number * share / kWhole;
  }
};

// Strings are views of what the model may keep.
models::Tensor Kept(const models::Tensor& tensor) {
  return tensor.dtype() == models::kString ? tensor.Copy() : tensor.Share();
}

std::vector<NamedTensor> Kept(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> kept;
  kept.reserve(tensors.size());
  for (const NamedTensor& each : tensors) {
    kept.push_back({each.name, Kept(each.tensor)});
  }
  return kept;
}

// Places in the runner's queue; what was not posted is given back.
class Entered {
 public:
  explicit Entered(ShadowRunner* runner) : runner_(runner) {}
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;
  ~Entered() {
    for (size_t i = 0; i < jobs_.size(); ++i) runner_->Leave();
  }

  bool TryAdd(const Target& target) {
    if (!runner_->TryEnter()) {
      target.counts->dropped.Add();
      return false;
    }
    jobs_.push_back({.model = target.settings.model,
                     .version = target.settings.version,
                     .tolerance = target.settings.tolerance,
                     .counts = target.counts});
    return true;
  }
  bool empty() const { return jobs_.empty(); }
  void SetRequest(const TensorRequest& request) {
    for (ShadowJob& job : jobs_) {
      job.inputs = Kept(request.inputs);
      job.output_names = request.outputs;
    }
  }
  void SetAnswer(const TensorResponse& response) {
    for (ShadowJob& job : jobs_) job.outputs = Kept(response.outputs);
  }
  void Post() {
    for (ShadowJob& job : jobs_) runner_->Post(std::move(job));
    jobs_.clear();
  }

 private:
  ShadowRunner* const runner_;
  std::vector<ShadowJob> jobs_;
};

class ShadowHandler final : public ForwardingHandler {
 public:
  ShadowHandler(std::unique_ptr<TensorHandler> inner, const ShadowParts& parts)
      : ForwardingHandler(std::move(inner)), runner_(parts.runner) {
    for (config::ShadowTarget settings : parts.settings->targets) {
      const bool is_own_model =
          settings.model.empty() || settings.model == parts.model;
      if (is_own_model && settings.version == parts.version) continue;
      settings.model = is_own_model ? parts.model : settings.model;
      auto target = std::make_unique<Target>();
      target->share =
          static_cast<uint64_t>(std::llround(settings.percent * 1e4));
      target->counts =
          parts.registry == nullptr
              ? std::make_shared<const ShadowCounts>()
              : std::make_shared<const ShadowCounts>(
                    *parts.registry,
                    MetricLabels{{"model", parts.model},
                                 {"version", parts.version},
                                 {"shadow_model", settings.model},
                                 {"shadow_version", settings.version}});
      target->settings = std::move(settings);
      targets_.push_back(std::move(target));
    }
  }

  void Start(TensorRequest request, Done done, std::stop_token stop) override {
    // A shadow's request: shadows of shadows could go in a circle.
    if (request.priority == scheduler::kLowestPriority) {
      return inner().Start(std::move(request), std::move(done),
                           std::move(stop));
    }
    const auto entered = std::make_shared<Entered>(runner_);
    for (const auto& target : targets_) {
      if (target->Takes()) entered->TryAdd(*target);
    }
    if (entered->empty()) {
      return inner().Start(std::move(request), std::move(done),
                           std::move(stop));
    }
    entered->SetRequest(request);
    inner().Start(
        std::move(request),
        [entered, done = std::move(done)](StatusOr<TensorResponse> response) {
          const bool is_ok = response.ok();
          if (is_ok) entered->SetAnswer(*response);
          done(std::move(response));
          // The model may be gone; what is left is held by `entered`.
          if (is_ok) entered->Post();
        },
        std::move(stop));
  }

 private:
  ShadowRunner* const runner_;
  std::vector<std::unique_ptr<Target>> targets_;  // not changed later
};

}  // namespace

std::unique_ptr<TensorHandler> MakeShadowHandler(
    std::unique_ptr<TensorHandler> inner, const ShadowParts& parts) {
  return std::make_unique<ShadowHandler>(std::move(inner), parts);
}

}  // namespace millrace::handlers
