// A servable that makes vectors of texts with a decoder: an embedding engine,
// the tensors it is seen as, and the task over texts.
#pragma once

#include <memory>

#include "handlers/handler.h"
#include "scheduler/embedding_engine.h"
#include "server/lifecycle/servable.h"

namespace millrace::server {

class EmbeddingModel final : public Servable {
 public:
  // The engine outlives the handlers.
  EmbeddingModel(ModelFacts facts,
                 std::unique_ptr<scheduler::EmbeddingEngine> engine,
                 std::unique_ptr<handlers::TensorHandler> tensors,
                 std::unique_ptr<handlers::TextHandler> texts,
                 std::unique_ptr<handlers::TaskHandler> task);

  ModelKind kind() const override { return ModelKind::kTensors; }
  StatusOr<handlers::GenerateHandler*> ForText() const override;
  StatusOr<handlers::TensorHandler*> ForTensors() const override {
    return tensors_.get();
  }
  StatusOr<handlers::TextHandler*> ForTexts() const override {
    return texts_.get();
  }
  handlers::TaskHandler* task() const override { return task_.get(); }
  bool Drain(std::chrono::steady_clock::time_point deadline) override {
    return engine_->Drain(deadline);
  }

 private:
  const std::unique_ptr<scheduler::EmbeddingEngine> engine_;
  const std::unique_ptr<handlers::TensorHandler> tensors_;
  const std::unique_ptr<handlers::TextHandler> texts_;
  const std::unique_ptr<handlers::TaskHandler> task_;  // texts as parts
};

}  // namespace millrace::server
