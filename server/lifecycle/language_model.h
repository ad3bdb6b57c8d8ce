// A servable that generates text: an engine and the handler that uses it.
#pragma once

#include <memory>
#include <optional>

#include "handlers/generate.h"
#include "models/grammar/grammar_compiler.h"
#include "models/llm/lora.h"
#include "scheduler/engine.h"
#include "server/lifecycle/servable.h"

namespace millrace::server {

// What an adapter is loaded for and answered with.
struct AdapterHost {
  std::shared_ptr<const models::LoraBase> base = {};  // null: takes none
  handlers::GenerateParts parts = {};  // they live as long as the model
};

// Those of GenerateParts. `calls` is null where `text` serves for both.
struct Grammars {
  std::unique_ptr<models::GrammarCompiler> text = nullptr;
  std::unique_ptr<models::GrammarCompiler> calls = nullptr;
};

class LanguageModel final : public Servable {
 public:
  // Engine and grammars outlive the handler; they may be null where the handler
  // needs none (tests).
  LanguageModel(ModelFacts facts, const TextFacts& text,
                std::unique_ptr<scheduler::Engine> engine,
                std::unique_ptr<handlers::GenerateHandler> handler,
                Grammars grammars = {}, AdapterHost adapter_host = {});

  ModelKind kind() const override { return ModelKind::kText; }
  const TextFacts* text_facts() const override { return &text_; }
  StatusOr<handlers::GenerateHandler*> ForText() const override {
    return handler_.get();
  }
  StatusOr<handlers::TensorHandler*> ForTensors() const override;
  bool Drain(std::chrono::steady_clock::time_point deadline) override;
  // A completion is an inference, a step of the engine an execution. Those of
  // adapters count, too.
  std::optional<ModelStatistics> statistics() const override;
  const AdapterHost& adapter_host() const { return adapter_host_; }

 private:
  const TextFacts text_;
  const AdapterHost adapter_host_;
  const std::unique_ptr<scheduler::Engine> engine_;
  const Grammars grammars_;
  const std::unique_ptr<handlers::GenerateHandler> handler_;
};

}  // namespace millrace::server
