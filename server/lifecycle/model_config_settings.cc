// What a config.pbtxt asks for beside names and tensors, as settings of ours:
// instances, batching, queue policies, the response cache.
#include <algorithm>
#include <set>
#include <string>

#include "config/base/log.h"
#include "config/load.h"
#include "model_config.pb.h"
#include "server/lifecycle/model_config.h"

namespace millrace::server {
namespace {

std::string ActionOf(const inference::ModelQueuePolicy& policy) {
  return policy.timeout_action() == inference::ModelQueuePolicy::DELAY
             ? "delay"
             : "reject";
}

constexpr uint64_t kMaxTimeoutUs = 3'600'000'000;
constexpr uint64_t kMaxQueueSize = 1 << 20;

StatusOr<int64_t> AtMost(uint64_t most, const char* field, uint64_t value) {
  if (value <= most) return static_cast<int64_t>(value);
  return InvalidArgument(std::string(field) + " is " + std::to_string(value) +
                         " but must be at most " + std::to_string(most))
      .At(field);
}

}  // namespace

Status ModelConfig::ApplyTo(config::ModelSettings* settings) const {
  static const std::set<std::string> kBackends = {"", "onnxruntime", "pytorch",
                                                  "millrace"};
  static const std::set<std::string> kPlatforms = {"",
                                                   "onnxruntime_onnx",
                                                   "pytorch_libtorch",
                                                   "millrace_onnx",
                                                   "millrace_pytorch",
                                                   "ensemble"};
  if (kBackends.count(message_->backend()) == 0) {
    return InvalidArgument("backend is '" + message_->backend() +
                           "' but this server has onnxruntime and pytorch "
                           "(both run by its own runtime); leave it out")
        .At("backend");
  }
  if (kPlatforms.count(message_->platform()) == 0) {
    return InvalidArgument("platform is '" + message_->platform() +
                           "' but this server has onnxruntime_onnx and "
                           "pytorch_libtorch; leave it out")
        .At("platform");
  }
  if (message_->max_batch_size() < 0) {
    return InvalidArgument("max_batch_size is " +
                           std::to_string(message_->max_batch_size()) +
                           " but must be at least 0")
        .At("max_batch_size");
  }
  int64_t num_instances = 0;
  for (const inference::ModelInstanceGroup& group :
       message_->instance_group()) {
    if (group.kind() == inference::ModelInstanceGroup::KIND_GPU) {
      return InvalidArgument(
                 "instance_group has kind KIND_GPU but this server computes "
                 "on CPUs; use KIND_CPU")
          .At("instance_group");
    }
    if (group.count() < 0) {
      return InvalidArgument("instance_group has count " +
                             std::to_string(group.count()) +
                             " but must have at least 1")
          .At("instance_group");
    }
    num_instances += std::max(group.count(), 1);
  }
  if (message_->has_ensemble_scheduling()) return OkStatus();
  const auto set = [&](const char* name, const std::string& value) {
    return config::SetModelSetting(settings, name, value);
  };
  if (num_instances > 0) {
    RETURN_IF_ERROR(set("instance_count", std::to_string(num_instances)));
  }
  if (message_->has_response_cache()) {
    settings->graph.response_cache = message_->response_cache().enable();
  }
  if (message_->has_sequence_batching()) {
    // Requests of different sequences are joined; each has one row.
    const inference::ModelSequenceBatching& batching =
        message_->sequence_batching();
    RETURN_IF_ERROR(set("max_batch_size", std::to_string(std::max(
                                              message_->max_batch_size(), 1))));
    RETURN_IF_ERROR(set("max_queue_delay",
                        std::to_string(std::max(
                            batching.oldest().max_queue_delay_microseconds(),
                            batching.direct().max_queue_delay_microseconds())) +
                            "us"));
  } else if (!message_->has_dynamic_batching()) {
    // As with Triton, requests are joined only where that is asked for.
    settings->graph.max_batch_size = 1;
  } else {
    const inference::ModelDynamicBatching& batching =
        message_->dynamic_batching();
    RETURN_IF_ERROR(
        set("max_batch_size", std::to_string(message_->max_batch_size())));
    RETURN_IF_ERROR(
        set("max_queue_delay",
            std::to_string(batching.max_queue_delay_microseconds()) + "us"));
    std::string sizes;
    for (const int32_t size : batching.preferred_batch_size()) {
      sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
    }
    if (!sizes.empty()) RETURN_IF_ERROR(set("preferred_batch_size", sizes));
    settings->graph.preserve_ordering = batching.preserve_ordering();
    RETURN_IF_ERROR(
        set("priority_levels", std::to_string(batching.priority_levels())));
    RETURN_IF_ERROR(set("default_priority_level",
                        std::to_string(batching.default_priority_level())));
    const inference::ModelQueuePolicy& policy = batching.default_queue_policy();
    RETURN_IF_ERROR(
        set("default_queue_timeout",
            std::to_string(policy.default_timeout_microseconds()) + "us"));
    settings->graph.queue_timeout_action = ActionOf(policy);
    settings->graph.allow_timeout_override = policy.allow_timeout_override();
    if (policy.max_queue_size() > 0) {
      RETURN_IF_ERROR(
          set("max_queue_size", std::to_string(policy.max_queue_size())));
    }
    for (const auto& [level, own] : batching.priority_queue_policy()) {
      ASSIGN_OR_RETURN(
          const int64_t number,
          AtMost(batching.priority_levels(), "priority_queue_policy", level));
      config::QueueLevelSettings& of_level =
          settings->graph.priority_queue_policy[number];
      ASSIGN_OR_RETURN(of_level.timeout_us,
                       AtMost(kMaxTimeoutUs, "default_timeout_microseconds",
                              own.default_timeout_microseconds()));
      ASSIGN_OR_RETURN(
          of_level.max_queue_size,
          AtMost(kMaxQueueSize, "max_queue_size", own.max_queue_size()));
      of_level.timeout_action = ActionOf(own);
      of_level.allow_timeout_override = own.allow_timeout_override();
    }
  }
  for (const auto& [name, parameter] : message_->parameters()) {
    // Of the pipeline.
    if (name == "ragged_inputs" || name == "session") continue;
    if (!config::IsModelSetting(name)) {
      LogWarning("a parameter of the configuration means nothing here",
                 {{"model", settings->name}, {"parameter", name}});
      continue;
    }
    RETURN_IF_ERROR(
        config::SetModelSetting(settings, name, parameter.string_value()));
  }
  return OkStatus();
}

}  // namespace millrace::server
