// Which requests are taken follows from their number alone: each target takes
// one whenever the sum of its shares passes a whole number.
#include "handlers/shadow/shadow_targets.h"

#include <cmath>
#include <utility>

namespace millrace::handlers {
namespace {

// Millionths of requests, so that their sums are exact.
constexpr uint64_t kWhole = 1'000'000;

}  // namespace

struct ShadowTargets::Target {
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

EnteredShadows::~EnteredShadows() {
  for (size_t i = 0; i < jobs_.size(); ++i) runner_->Leave();
}

void EnteredShadows::Post() {
  for (ShadowJob& job : jobs_) runner_->Post(std::move(job));
  jobs_.clear();
}

ShadowTargets::ShadowTargets(const ShadowParts& parts) : runner_(parts.runner) {
  for (config::ShadowTarget settings : parts.settings->targets) {
    const bool is_own_model =
        settings.model.empty() || settings.model == parts.model;
    if (is_own_model && settings.version == parts.version) continue;
    settings.model = is_own_model ? parts.model : settings.model;
    auto target = std::make_shared<Target>();
    target->share = static_cast<uint64_t>(std::llround(settings.percent * 1e4));
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

std::shared_ptr<EnteredShadows> ShadowTargets::Enter() {
  std::shared_ptr<EnteredShadows> entered;
  for (const auto& target : targets_) {
    if (!target->Takes()) continue;
    if (!runner_->TryEnter()) {
      target->counts->dropped.Add();
      continue;
    }
    if (entered == nullptr) entered = std::make_shared<EnteredShadows>(runner_);
    entered->jobs_.push_back({.model = target->settings.model,
                              .version = target->settings.version,
                              .tolerance = target->settings.tolerance,
                              .counts = target->counts});
  }
  return entered;
}

}  // namespace millrace::handlers
