// A servable that is a graph of other models of the repository. It computes
// nothing itself and holds no cores: each step is a request to its model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "config/ensemble_settings.h"
#include "handlers/ensemble/ensemble.h"
#include "handlers/model_lender.h"
#include "server/lifecycle/composite.h"
#include "server/lifecycle/servable.h"

namespace millrace::server {

class EnsembleModel final : public Servable, public Composite {
 public:
  // Its models serve already, for their types are checked against each other.
  // INVALID_ARGUMENT says what does not fit, UNAVAILABLE and NOT_FOUND which
  // model is missing. `lender` outlives it.
  static StatusOr<std::shared_ptr<Servable>> Create(
      ModelFacts facts, const config::EnsembleSettings& settings,
      int64_t max_in_flight, handlers::ModelLender* lender);

  EnsembleModel(ModelFacts facts, int depth,
                std::unique_ptr<handlers::EnsembleHandler> handler);

  ModelKind kind() const override { return ModelKind::kTensors; }
  StatusOr<handlers::GenerateHandler*> ForText() const override;
  StatusOr<handlers::TensorHandler*> ForTensors() const override {
    return handler_.get();
  }
  Status Ready() const override { return handler_->Ready(); }
  Status Takes() const override { return handler_->Takes(); }
  int depth() const override { return depth_; }
  std::vector<std::string> members() const override;
  bool Drain(std::chrono::steady_clock::time_point deadline) override;
  std::optional<ModelStatistics> statistics() const override;

 private:
  const int depth_;
  const std::unique_ptr<handlers::EnsembleHandler> handler_;
};

}  // namespace millrace::server
