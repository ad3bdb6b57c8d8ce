// A servable that is a process of its own, in any language.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "handlers/external/external.h"
#include "server/lifecycle/composite.h"
#include "server/lifecycle/servable.h"

namespace millrace::server {

class ExternalModel final : public Servable, public Composite {
 public:
  // Blocks until the process is ready.
  static StatusOr<std::shared_ptr<Servable>> Create(
      ModelFacts facts, handlers::ExternalParts parts);

  ExternalModel(ModelFacts facts,
                std::unique_ptr<handlers::ExternalHandler> handler);

  ModelKind kind() const override { return ModelKind::kTensors; }
  StatusOr<handlers::GenerateHandler*> ForText() const override;
  StatusOr<handlers::TensorHandler*> ForTensors() const override {
    return handler_.get();
  }
  handlers::TaskHandler* task() const override { return handler_.get(); }
  Status Ready() const override { return handler_->Ready(); }
  Status Takes() const override { return handler_->Takes(); }
  // It may call any model.
  int depth() const override { return 1000; }
  std::vector<std::string> members() const override { return {}; }
  int64_t instance_count() const override { return handler_->num_instances(); }
  bool HasInstances(int64_t count) const override {
    return instance_count() == count;
  }
  bool Drain(std::chrono::steady_clock::time_point deadline) override;
  std::optional<ModelStatistics> statistics() const override;

 private:
  const std::unique_ptr<handlers::ExternalHandler> handler_;
};

// The folder of the bases that are shipped with this program (Python, C++):
// MILLRACE_HANDLERS, or beside the program, or in the sources it was built
// from.
std::string HandlersPath();

}  // namespace millrace::server
