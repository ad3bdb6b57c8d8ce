// A servable that turns speech into text by three graphs, which are its own and
// stand in no list: their metrics are those of NAME/encoder, NAME/predictor and
// NAME/joiner.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "config/base/metrics.h"
#include "config/base/status.h"
#include "config/pipeline_settings.h"
#include "handlers/make_task.h"
#include "handlers/transducer/transducer_recogniser.h"
#include "server/lifecycle/servable.h"

namespace millrace::server {

class TransducerModel final : public Servable {
 public:
  struct Graphs {
    std::shared_ptr<Servable> encoder, predictor, joiner;
  };
  // `pipeline` has a transducer. INVALID_ARGUMENT says what does not fit.
  static StatusOr<std::shared_ptr<Servable>> Create(
      ModelFacts facts, Graphs graphs, const handlers::TaskParts& parts,
      const config::PipelineSettings& pipeline);

  TransducerModel(ModelFacts facts, Graphs graphs,
                  std::unique_ptr<handlers::TransducerRecogniser> recogniser,
                  std::unique_ptr<handlers::TensorHandler> sessions,
                  std::unique_ptr<handlers::TaskHandler> task);

  ModelKind kind() const override { return ModelKind::kTensors; }
  StatusOr<handlers::GenerateHandler*> ForText() const override;
  StatusOr<handlers::TensorHandler*> ForTensors() const override {
    return sessions_.get();
  }
  handlers::TaskHandler* task() const override { return task_.get(); }
  // Those of the encoder; predictor and joiner have one each.
  int64_t instance_count() const override {
    return graphs_.encoder->instance_count();
  }
  Status SetInstanceCount(int64_t count) override {
    return graphs_.encoder->SetInstanceCount(count);
  }
  bool HasInstances(int64_t count) const override {
    return graphs_.encoder->HasInstances(count);
  }
  bool Drain(std::chrono::steady_clock::time_point deadline) override;
  // Those of the encoder: a segment is an inference.
  std::optional<ModelStatistics> statistics() const override;

 private:
  const Graphs graphs_;
  const std::unique_ptr<handlers::TransducerRecogniser> recogniser_;
  const std::unique_ptr<handlers::TensorHandler> sessions_;
  const std::unique_ptr<handlers::TaskHandler> task_;
};

}  // namespace millrace::server
