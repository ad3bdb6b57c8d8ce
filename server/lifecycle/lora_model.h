// A LoRA adapter as clients see it: a model of its own name, which runs in the
// engine of its base model together with the base's other requests.
//
//   ASSIGN_OR_RETURN(auto adapter, LoadLoraModel(base, "sql", "adapters/sql"));
//   repository.Add(adapter);
//
// It keeps its base in memory; when the base leaves the table or is loaded
// again, requests for the adapter are answered UNAVAILABLE until it is unloaded
// or loaded again, too.
#pragma once

#include <memory>
#include <string>

#include "models/llm/live_lora.h"
#include "server/lifecycle/servable.h"

namespace millrace::server {

class LoraModel final : public Servable {
 public:
  LoraModel(ModelFacts facts, const TextFacts& text,
            std::shared_ptr<Servable> base,
            std::shared_ptr<models::LiveLora> adapter,
            std::unique_ptr<handlers::GenerateHandler> handler);

  ModelKind kind() const override { return ModelKind::kText; }
  const TextFacts* text_facts() const override { return &text_; }
  StatusOr<handlers::GenerateHandler*> ForText() const override {
    return handler_.get();
  }
  StatusOr<handlers::TensorHandler*> ForTensors() const override;
  double adapter_scale() const override { return adapter_->scale(); }
  Status SetAdapterScale(double scale) override {
    return adapter_->SetScale(static_cast<float>(scale));
  }
  // The base drains its engine, in which the adapter's requests run.
  bool Drain(std::chrono::steady_clock::time_point) override { return true; }

 private:
  const TextFacts text_;
  const std::shared_ptr<Servable> base_;  // shared: it serves by itself, too
  const std::shared_ptr<models::LiveLora> adapter_;  // the handler asks it, too
  const std::unique_ptr<handlers::GenerateHandler> handler_;
};

// Blocks while the files are read. INVALID_ARGUMENT where the base cannot have
// adapters; else see models::LoadLora.
StatusOr<std::shared_ptr<Servable>> LoadLoraModel(
    std::shared_ptr<Servable> base, const std::string& name,
    const std::string& path);

}  // namespace millrace::server
