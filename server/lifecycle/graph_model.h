// A servable that computes tensors: a batcher and the handler that uses it.
#pragma once

#include <memory>

#include "scheduler/batcher.h"
#include "server/lifecycle/servable.h"

namespace millrace::server {

class GraphModel final : public Servable {
 public:
  // The batcher outlives the handler.
  GraphModel(ModelFacts facts, std::unique_ptr<scheduler::Batcher> batcher,
             std::unique_ptr<handlers::TensorHandler> handler);

  ModelKind kind() const override { return ModelKind::kTensors; }
  StatusOr<handlers::GenerateHandler*> ForText() const override;
  StatusOr<handlers::TensorHandler*> ForTensors() const override {
    return handler_.get();
  }
  bool Drain(std::chrono::steady_clock::time_point deadline) override {
    return batcher_->Drain(deadline);
  }

  std::optional<ModelStatistics> statistics() const override;

  scheduler::Batcher& batcher() { return *batcher_; }

 private:
  const std::unique_ptr<scheduler::Batcher> batcher_;
  const std::unique_ptr<handlers::TensorHandler> handler_;
};

}  // namespace millrace::server
