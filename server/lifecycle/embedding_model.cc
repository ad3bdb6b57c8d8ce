#include "server/lifecycle/embedding_model.h"

#include <utility>

namespace millrace::server {

EmbeddingModel::EmbeddingModel(
    ModelFacts facts, std::unique_ptr<scheduler::EmbeddingEngine> engine,
    std::unique_ptr<handlers::TensorHandler> tensors,
    std::unique_ptr<handlers::TextHandler> texts,
    std::unique_ptr<handlers::TaskHandler> task)
    : Servable(std::move(facts)),
      engine_(std::move(engine)),
      tensors_(std::move(tensors)),
      texts_(std::move(texts)),
      task_(std::move(task)) {}

StatusOr<handlers::GenerateHandler*> EmbeddingModel::ForText() const {
  return InvalidArgument("the model '" + id() +
                         "' makes vectors of texts; POST /v1/embeddings")
      .At("model")
      .Because("wrong_model_kind");
}

}  // namespace millrace::server
