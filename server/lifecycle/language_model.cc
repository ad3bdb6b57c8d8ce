#include "server/lifecycle/language_model.h"

#include <utility>

namespace millrace::server {

LanguageModel::LanguageModel(ModelFacts facts, const TextFacts& text,
                             std::unique_ptr<scheduler::Engine> engine,
                             std::unique_ptr<handlers::GenerateHandler> handler,
                             Grammars grammars, AdapterHost adapter_host)
    : Servable(std::move(facts)),
      text_(text),
      adapter_host_(std::move(adapter_host)),
      engine_(std::move(engine)),
      grammars_(std::move(grammars)),
      handler_(std::move(handler)) {}

StatusOr<handlers::TensorHandler*> LanguageModel::ForTensors() const {
  return InvalidArgument("the model '" + id() +
                         "' is a language model; POST /v1/chat/completions, "
                         "or send infer a text_input")
      .At("model")
      .Because("wrong_model_kind");
}

bool LanguageModel::Drain(std::chrono::steady_clock::time_point deadline) {
  return engine_ == nullptr || engine_->Drain(deadline);
}

std::optional<ModelStatistics> LanguageModel::statistics() const {
  if (engine_ == nullptr) return std::nullopt;
  const scheduler::EngineStats engine = engine_->stats();
  const scheduler::CompletionCounts& counts = engine.completions;
  ModelStatistics stats;
  stats.last_inference_ms = counts.last_end_ms;
  stats.inference_count = counts.success.count;
  stats.execution_count = engine.steps;
  stats.success = InNs(counts.success);
  stats.fail = InNs(counts.fail);
  stats.queue = InNs(counts.queue);
  stats.compute_infer = InNs(counts.compute);
  stats.compute_input.count = stats.compute_output.count = counts.success.count;
  return stats;
}

}  // namespace millrace::server
