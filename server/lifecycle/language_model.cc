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
                         "or call ModelInfer over gRPC with a text_input")
      .At("model")
      .Because("wrong_model_kind");
}

bool LanguageModel::Drain(std::chrono::steady_clock::time_point deadline) {
  return engine_ == nullptr || engine_->Drain(deadline);
}

}  // namespace millrace::server
