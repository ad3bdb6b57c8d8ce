#include "server/lifecycle/ensemble_model.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "config/base/log.h"
#include "handlers/ensemble/ensemble_plan.h"
#include "handlers/task_forms.h"

namespace millrace::server {
namespace {

constexpr auto kLookAgain = std::chrono::milliseconds(2);

CountedNs Summed(int64_t count, Clock::Duration time) {
  return {count, time.count()};
}

}  // namespace

StatusOr<std::shared_ptr<Servable>> EnsembleModel::Create(
    ModelFacts facts, const config::EnsembleSettings& settings,
    int64_t max_in_flight, handlers::ModelLender* lender) {
  lender->Forget(facts.id);
  std::vector<handlers::StepPorts> ports;
  int depth = 0;
  for (const config::EnsembleStep& step : settings.steps) {
    const std::string version =
        step.version > 0 ? std::to_string(step.version) : std::string();
    StatusOr<handlers::LentModel> lent =
        lender->Lend(facts.id, step.model, version);
    if (!lent.ok()) {
      return lent.status().Prefixed("step " + std::to_string(ports.size() + 1) +
                                    " of the ensemble '" + facts.id + "'");
    }
    ports.push_back({lent->handler->inputs(), lent->handler->outputs(),
                     handlers::TaskFormsOf(*lent->handler)});
    depth = std::max(depth, lent->depth);
  }
  ASSIGN_OR_RETURN(handlers::EnsemblePlan plan,
                   handlers::EnsemblePlan::Create(facts.id, settings, ports));
  facts.platform = "ensemble";
  LogInfo("ensemble loaded",
          {{"model", facts.id},
           {"steps", static_cast<int64_t>(plan.steps.size())},
           {"tensors", static_cast<int64_t>(plan.tensors.size())}});
  auto handler = std::make_unique<handlers::EnsembleHandler>(
      handlers::EnsembleParts{
          .model = facts.id, .lender = lender, .max_in_flight = max_in_flight},
      std::move(plan));
  return std::shared_ptr<Servable>(std::make_shared<EnsembleModel>(
      std::move(facts), depth + 1, std::move(handler)));
}

EnsembleModel::EnsembleModel(ModelFacts facts, int depth,
                             std::unique_ptr<handlers::EnsembleHandler> handler)
    : Servable(std::move(facts)), depth_(depth), handler_(std::move(handler)) {}

StatusOr<handlers::GenerateHandler*> EnsembleModel::ForText() const {
  return InvalidArgument("the model '" + id() +
                         "' is an ensemble, which takes tensors and generates "
                         "no text; POST /v2/models/" +
                         id() + "/infer or call ModelInfer")
      .At("model")
      .Because("wrong_model_kind");
}

std::vector<std::string> EnsembleModel::members() const {
  std::vector<std::string> all;
  for (const handlers::EnsemblePlan::Step& step : handler_->plan().steps) {
    if (std::find(all.begin(), all.end(), step.model) == all.end()) {
      all.push_back(step.model);
    }
  }
  return all;
}

// Its steps end by themselves or with their own models' deadline, which comes
// right after this one's.
bool EnsembleModel::Drain(std::chrono::steady_clock::time_point deadline) {
  while (handler_->in_flight() > 0) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kLookAgain);
  }
  return true;
}

std::optional<ModelStatistics> EnsembleModel::statistics() const {
  const handlers::EnsembleCounts counts = handler_->counts();
  const int64_t runs = counts.num_success;
  ModelStatistics stats;
  stats.last_inference_ms = counts.last_inference_ms;
  stats.inference_count = counts.inferences;
  stats.execution_count = runs;
  stats.success = Summed(runs, counts.success_time);
  stats.fail = Summed(counts.num_failure, counts.failure_time);
  stats.queue = Summed(runs, counts.queue);
  stats.compute_input = Summed(runs, counts.compute_input);
  stats.compute_infer = Summed(runs, counts.compute_infer);
  stats.compute_output = Summed(runs, counts.compute_output);
  return stats;
}

}  // namespace millrace::server
