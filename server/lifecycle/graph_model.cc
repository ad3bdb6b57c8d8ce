#include "server/lifecycle/graph_model.h"

#include <utility>

namespace millrace::server {
namespace {

CountedNs InNs(const scheduler::CountedTime& time) {
  return {
      time.count,
      std::chrono::duration_cast<std::chrono::nanoseconds>(time.total).count()};
}

}  // namespace

GraphModel::GraphModel(ModelFacts facts,
                       std::unique_ptr<scheduler::Batcher> batcher,
                       std::unique_ptr<handlers::TensorHandler> handler)
    : Servable(std::move(facts)),
      batcher_(std::move(batcher)),
      handler_(std::move(handler)) {}

std::optional<ModelStatistics> GraphModel::statistics() const {
  const scheduler::BatchCounts counts = batcher_->counts();
  ModelStatistics stats;
  stats.last_inference_ms = counts.last_inference_ms;
  stats.inference_count = counts.inferences;
  stats.execution_count = counts.executions;
  stats.success = InNs(counts.success);
  for (const scheduler::CountedTime& each :
       {counts.failure, counts.cancelled, counts.rejected}) {
    stats.fail.count += InNs(each).count;
    stats.fail.ns += InNs(each).ns;
  }
  stats.queue = InNs(counts.queue);
  stats.compute_input = InNs(counts.compute_input);
  stats.compute_infer = InNs(counts.compute_infer);
  stats.compute_output = InNs(counts.compute_output);
  for (const auto& [rows, of_size] : counts.by_batch_rows) {
    stats.batches.push_back({rows, InNs(of_size.compute_input),
                             InNs(of_size.compute_infer),
                             InNs(of_size.compute_output)});
  }
  return stats;
}

StatusOr<handlers::GenerateHandler*> GraphModel::ForText() const {
  return InvalidArgument("the model '" + id() +
                         "' is a graph, which takes tensors and generates no "
                         "text; POST /v2/models/" +
                         id() + "/infer or call ModelInfer")
      .At("model")
      .Because("wrong_model_kind");
}

}  // namespace millrace::server
