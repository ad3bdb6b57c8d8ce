// A servable that generates text: an engine and the handler that uses it.
#pragma once

#include <memory>

#include "models/grammar/grammar_compiler.h"
#include "scheduler/engine.h"
#include "server/lifecycle/servable.h"

namespace millrace::server {

class LanguageModel final : public Servable {
 public:
  // Engine and grammars outlive the handler; they may be null where the handler
  // needs none (tests).
  LanguageModel(ModelFacts facts, const TextFacts& text,
                std::unique_ptr<scheduler::Engine> engine,
                std::unique_ptr<handlers::GenerateHandler> handler,
                std::unique_ptr<models::GrammarCompiler> grammars = nullptr);

  ModelKind kind() const override { return ModelKind::kText; }
  const TextFacts* text_facts() const override { return &text_; }
  StatusOr<handlers::GenerateHandler*> ForText() const override {
    return handler_.get();
  }
  StatusOr<handlers::TensorHandler*> ForTensors() const override;
  bool Drain(std::chrono::steady_clock::time_point deadline) override;

 private:
  const TextFacts text_;
  const std::unique_ptr<scheduler::Engine> engine_;
  const std::unique_ptr<models::GrammarCompiler> grammars_;
  const std::unique_ptr<handlers::GenerateHandler> handler_;
};

}  // namespace millrace::server
