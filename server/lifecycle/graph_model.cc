#include "server/lifecycle/graph_model.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "config/base/json.h"
#include "config/base/log.h"

namespace millrace::server {
namespace {

constexpr int64_t kMaxInstances = 1024;

}  // namespace

GraphModel::GraphModel(
    ModelFacts facts, std::unique_ptr<scheduler::Batcher> batcher,
    std::unique_ptr<handlers::TensorHandler> handler,
    MakeContexts make_contexts, std::unique_ptr<handlers::TaskHandler> task,
    std::unique_ptr<handlers::TextHandler> texts,
    std::unique_ptr<handlers::ResponseCache> cache, FindPlaces find_places,
    std::shared_ptr<handlers::DriftMonitor> drift, int64_t num_devices)
    : Servable(std::move(facts)),
      batcher_(std::move(batcher)),
      cache_(std::move(cache)),
      handler_(std::move(handler)),
      task_(std::move(task)),
      texts_(std::move(texts)),
      make_contexts_(std::move(make_contexts)),
      find_places_(std::move(find_places)),
      drift_(std::move(drift)),
      num_devices_(num_devices) {}

std::string GraphModel::DriftJson() const {
  return drift_ == nullptr ? std::string() : drift_->Json();
}

std::vector<InstancePlace> GraphModel::places() const {
  if (find_places_ == nullptr) return {};
  return find_places_(instance_count());
}

Status GraphModel::SetInstanceCount(int64_t count) {
  if (make_contexts_ == nullptr) {
    return Unimplemented("the model '" + id() +
                         "' has a fixed number of instances");
  }
  if (count < 1 || count > kMaxInstances) {
    return InvalidArgument("instance_count is " + std::to_string(count) +
                           " but must be 1 to " + std::to_string(kMaxInstances))
        .At("instance_count");
  }
  const int64_t before = instance_count();
  batcher_->SetInstances(make_contexts_(count));
  auto config = ParseJson(config_json());
  if (config.ok() && config->is_object()) {
    nlohmann::ordered_json& groups = (*config)["instance_group"];
    if (groups.empty()) groups = {{{"name", id()}, {"kind", "KIND_CPU"}}};
    groups.erase(std::next(groups.begin()), groups.end());
    groups[0]["count"] = count;
    set_config_json(DumpJson(*config));
  }
  LogInfo("instances changed", {{"model", id()},
                                {"version", version()},
                                {"before", before},
                                {"instances", count}});
  return OkStatus();
}

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
  if (cache_ != nullptr) {
    const handlers::CacheCounts cached = cache_->counts();
    stats.cache_hit = InNs({cached.hits, cached.hit_time});
    stats.cache_miss = InNs({cached.misses, cached.miss_time});
    stats.success.count += stats.cache_hit.count;
    stats.success.ns += stats.cache_hit.ns;
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

StatusOr<handlers::TextHandler*> GraphModel::ForTexts() const {
  if (texts_ == nullptr) return Servable::ForTexts();
  return texts_.get();
}

}  // namespace millrace::server
