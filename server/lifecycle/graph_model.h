// A servable that computes tensors: a batcher and the handler that uses it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "handlers/drift/drift_monitor.h"
#include "handlers/response_cache.h"
#include "models/graph/execution_context.h"
#include "scheduler/batcher.h"
#include "server/lifecycle/placement.h"
#include "server/lifecycle/servable.h"
#include "server/lifecycle/watched.h"

namespace millrace::server {

class GraphModel final : public Servable, public Placed, public Watched {
 public:
  using Contexts =
      std::vector<std::unique_ptr<models::graph::ExecutionContext>>;
  // So many contexts of the graph on each of its devices, each with its part of
  // the model's cores.
  using MakeContexts = std::function<Contexts(int64_t count)>;
  // Where so many in all are.
  using FindPlaces = std::function<std::vector<InstancePlace>(int64_t count)>;

  // The batcher outlives the handlers. Without `make_contexts` the number of
  // instances stays; `task`, `texts`, `cache`, `find_places` and `drift` may be
  // null. `num_devices`: those that `make_contexts` makes contexts for.
  GraphModel(ModelFacts facts, std::unique_ptr<scheduler::Batcher> batcher,
             std::unique_ptr<handlers::TensorHandler> handler,
             MakeContexts make_contexts = nullptr,
             std::unique_ptr<handlers::TaskHandler> task = nullptr,
             std::unique_ptr<handlers::TextHandler> texts = nullptr,
             std::unique_ptr<handlers::ResponseCache> cache = nullptr,
             FindPlaces find_places = nullptr,
             std::shared_ptr<handlers::DriftMonitor> drift = nullptr,
             int64_t num_devices = 1);

  ModelKind kind() const override { return ModelKind::kTensors; }
  StatusOr<handlers::GenerateHandler*> ForText() const override;
  StatusOr<handlers::TensorHandler*> ForTensors() const override {
    return handler_.get();
  }
  handlers::TaskHandler* task() const override { return task_.get(); }
  StatusOr<handlers::TextHandler*> ForTexts() const override;
  int64_t instance_count() const override { return batcher_->num_instances(); }
  Status SetInstanceCount(int64_t count) override;
  bool HasInstances(int64_t count) const override {
    return instance_count() == count * num_devices_;
  }
  bool Drain(std::chrono::steady_clock::time_point deadline) override {
    return batcher_->Drain(deadline);
  }

  std::optional<ModelStatistics> statistics() const override;
  std::string DriftJson() const override;
  std::vector<InstancePlace> places() const override;

  scheduler::Batcher& batcher() { return *batcher_; }

 private:
  const std::unique_ptr<scheduler::Batcher> batcher_;
  const std::unique_ptr<handlers::ResponseCache> cache_;  // or null
  const std::unique_ptr<handlers::TensorHandler> handler_;
  const std::unique_ptr<handlers::TaskHandler> task_;   // or null
  const std::unique_ptr<handlers::TextHandler> texts_;  // or null
  const MakeContexts make_contexts_;
  const FindPlaces find_places_;  // or null
  // Shared with the handler, which adds the predictions; or null.
  const std::shared_ptr<handlers::DriftMonitor> drift_;
  const int64_t num_devices_;
};

}  // namespace millrace::server
