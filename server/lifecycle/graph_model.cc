#include "server/lifecycle/graph_model.h"

#include <utility>

namespace millrace::server {

GraphModel::GraphModel(ModelFacts facts,
                       std::unique_ptr<scheduler::Batcher> batcher,
                       std::unique_ptr<handlers::TensorHandler> handler)
    : Servable(std::move(facts)),
      batcher_(std::move(batcher)),
      handler_(std::move(handler)) {}

StatusOr<handlers::GenerateHandler*> GraphModel::ForText() const {
  return InvalidArgument("the model '" + id() +
                         "' is a graph, which takes tensors and generates no "
                         "text; POST /v2/models/" +
                         id() + "/infer or call ModelInfer")
      .At("model")
      .Because("wrong_model_kind");
}

}  // namespace millrace::server
