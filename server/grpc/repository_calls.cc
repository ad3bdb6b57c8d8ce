#include "server/grpc/repository_calls.h"

#include <google/protobuf/util/json_util.h>

#include <utility>

#include "open_inference_grpc.pb.h"
#include "server/lifecycle/control.h"
#include "server/lifecycle/placement.h"

namespace millrace::server {
namespace {

void Put(const CountedNs& counted, inference::StatisticDuration* duration) {
  duration->set_count(static_cast<uint64_t>(counted.count));
  duration->set_ns(static_cast<uint64_t>(counted.ns));
}

void Describe(const Servable& servable, const ModelStatistics& stats,
              inference::ModelStatistics* message) {
  message->set_name(servable.id());
  message->set_version(servable.version());
  message->set_last_inference(static_cast<uint64_t>(stats.last_inference_ms));
  message->set_inference_count(static_cast<uint64_t>(stats.inference_count));
  message->set_execution_count(static_cast<uint64_t>(stats.execution_count));
  inference::InferStatistics* infer = message->mutable_inference_stats();
  Put(stats.success, infer->mutable_success());
  Put(stats.fail, infer->mutable_fail());
  Put(stats.queue, infer->mutable_queue());
  Put(stats.compute_input, infer->mutable_compute_input());
  Put(stats.compute_infer, infer->mutable_compute_infer());
  Put(stats.compute_output, infer->mutable_compute_output());
  Put(stats.cache_hit, infer->mutable_cache_hit());
  Put(stats.cache_miss, infer->mutable_cache_miss());
  for (const ModelStatistics::OfBatch& batch : stats.batches) {
    inference::InferBatchStatistics* each = message->add_batch_stats();
    each->set_batch_size(static_cast<uint64_t>(batch.rows));
    Put(batch.compute_input, each->mutable_compute_input());
    Put(batch.compute_infer, each->mutable_compute_infer());
    Put(batch.compute_output, each->mutable_compute_output());
  }
  const auto* placed = dynamic_cast<const Placed*>(&servable);
  if (placed == nullptr) return;
  for (const InstancePlace& place : placed->places()) {
    auto* instance = message->add_instances();
    instance->mutable_cpus()->Add(place.cpus.begin(), place.cpus.end());
    instance->mutable_numa_nodes()->Add(place.numa_nodes.begin(),
                                        place.numa_nodes.end());
  }
}

}  // namespace

Status DescribeConfig(const Servable& servable,
                      inference::ModelConfigResponse* response) {
  const auto read = google::protobuf::util::JsonStringToMessage(
      servable.config_json(), response->mutable_config(), {});
  if (read.ok()) return OkStatus();
  return Internal("the configuration of '" + servable.id() + "' is not known");
}

Status DescribeStatistics(const Repository& repository,
                          const inference::ModelStatisticsRequest& request,
                          inference::ModelStatisticsResponse* response) {
  ASSIGN_OR_RETURN(
      const std::vector<CountedModel> all,
      CollectStatistics(repository, request.name(), request.version()));
  for (const auto& [servable, stats] : all) {
    Describe(*servable, stats, response->add_model_stats());
  }
  return OkStatus();
}

void DescribeIndex(const Repository& repository, bool ready_only,
                   inference::RepositoryIndexResponse* response) {
  for (VersionStatus& each : repository.Index()) {
    if (ready_only && each.state != VersionState::kReady) continue;
    auto* model = response->add_models();
    model->set_name(std::move(each.name));
    if (!each.version.empty() || each.state != VersionState::kUnknown) {
      model->set_version(std::move(each.version));
      model->set_state(std::string(VersionStateName(each.state)));
    }
    model->set_reason(std::move(each.reason));
  }
}

void StartLoad(Repository* repository,
               const inference::RepositoryModelLoadRequest& request,
               Repository::Done done) {
  std::string config;
  for (const auto& [name, value] : request.parameters()) {
    if (Status status = CheckLoadParameter(name); !status.ok()) {
      return done(std::move(status));
    }
    if (!value.has_string_param()) {
      return done(InvalidArgument("config must be JSON in a string_param")
                      .At("config"));
    }
    config = value.string_param();
  }
  repository->RequestLoad(request.model_name(), config, std::move(done));
}

void StartUnload(Repository* repository,
                 const inference::RepositoryModelUnloadRequest& request,
                 Repository::Done done) {
  bool with_members = false;
  for (const auto& [name, value] : request.parameters()) {
    if (Status status = CheckUnloadParameter(name); !status.ok()) {
      return done(std::move(status));
    }
    if (!value.has_bool_param()) {
      return done(InvalidArgument(name + " must be a bool_param").At(name));
    }
    with_members = value.bool_param();
  }
  RequestUnload(repository, request.model_name(), with_members,
                std::move(done));
}

}  // namespace millrace::server
