// What a config.pbtxt asks for beside names and tensors, as settings of ours:
// instances, batching, queue policies, the response cache.
#include <algorithm>
#include <set>
#include <string>

#include "config/load.h"
#include "model_config.pb.h"
#include "server/lifecycle/model_config.h"
#include "server/lifecycle/model_scheduling.h"

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

Status WrongGroup(const std::string& what) {
  return InvalidArgument("instance_group " + what).At("instance_group");
}

// What instance_group asks for: so many instances, on GPUs on each.
struct Instances {
  int64_t count = 0;
  std::string devices;  // empty: not said
};
StatusOr<Instances> InstancesOf(const inference::ModelConfig& message) {
  Instances all;
  std::set<int32_t> gpus;
  for (const inference::ModelInstanceGroup& group : message.instance_group()) {
    if (group.count() < 0) {
      return WrongGroup("has count " + std::to_string(group.count()) +
                        " but must have at least 1");
    }
    const int64_t count = std::max(group.count(), 1);
    const bool gpu = group.kind() == inference::ModelInstanceGroup::KIND_GPU;
    if (&group != &message.instance_group(0) && gpu != !all.devices.empty()) {
      return WrongGroup(
          "has KIND_GPU beside another kind, but all instances of a model run "
          "on one kind of device; make them one kind");
    }
    if (!gpu) {
      all.count += count;
      continue;
    }
    if (!all.devices.empty() && count != all.count) {
      return WrongGroup("has counts " + std::to_string(all.count) + " and " +
                        std::to_string(count) +
                        ", but each GPU has as many instances as the others; "
                        "make the counts equal");
    }
    all.count = count;
    for (const int32_t number : group.gpus()) {
      if (number < 0 || !gpus.insert(number).second) {
        return WrongGroup("names GPU " + std::to_string(number) +
                          (number < 0 ? ", which no machine has"
                                      : " twice; raise its count instead"));
      }
      all.devices +=
          (all.devices.empty() ? "cuda:" : ",cuda:") + std::to_string(number);
    }
    if (group.gpus().empty()) {
      if (message.instance_group_size() > 1) {
        return WrongGroup(
            "has a group on all GPUs beside another one; name the gpus of "
            "each");
      }
      all.devices = "cuda:all";
    }
  }
  return all;
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
  if (message_->backend() == "python") {
    return InvalidArgument(
               "backend is 'python' but model.py is not run here; a "
               "config.yaml "
               "with `external: {command: [python3, handler.py]}` in the place "
               "of config.pbtxt serves code of your own")
        .At("backend");
  }
  if (kBackends.count(message_->backend()) == 0) {
    return InvalidArgument("backend is '" + message_->backend() +
                           "' but this server has onnxruntime and pytorch "
                           "(both run by its own runtime); export the model as "
                           "ONNX or by torch.export (.pt2) and leave it out")
        .At("backend");
  }
  if (kPlatforms.count(message_->platform()) == 0) {
    return InvalidArgument("platform is '" + message_->platform() +
                           "' but this server has onnxruntime_onnx and "
                           "pytorch_libtorch; export the model as ONNX or by "
                           "torch.export (.pt2) and leave it out")
        .At("platform");
  }
  if (message_->max_batch_size() < 0) {
    return InvalidArgument("max_batch_size is " +
                           std::to_string(message_->max_batch_size()) +
                           " but must be at least 0")
        .At("max_batch_size");
  }
  ASSIGN_OR_RETURN(const Instances instances, InstancesOf(*message_));
  if (message_->has_ensemble_scheduling()) return OkStatus();
  const auto set = [&](const char* name, const std::string& value) {
    return config::SetModelSetting(settings, name, value);
  };
  if (instances.count > 0) {
    RETURN_IF_ERROR(set("instance_count", std::to_string(instances.count)));
  }
  if (!instances.devices.empty()) {
    RETURN_IF_ERROR(set("device", instances.devices));
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
    if (!config::IsModelSetting(name)) continue;
    RETURN_IF_ERROR(
        config::SetModelSetting(settings, name, parameter.string_value()));
  }
  return OkStatus();
}

std::string ModelConfig::WithoutEffect() const {
  std::string text;
  const auto add = [&text](const std::string& what) {
    text += (text.empty() ? "" : ", ") + what;
  };
  for (const std::string& hint : hints_) add(hint);
  if (const std::string left_out = SamplesLeftOut(*message_);
      !left_out.empty()) {
    add(left_out);
  }
  std::set<std::string> parameters;  // the map has no order
  for (const auto& [name, parameter] : message_->parameters()) {
    const bool is_of_pipeline = name == "ragged_inputs" || name == "session";
    if (!is_of_pipeline && !config::IsModelSetting(name)) {
      parameters.insert(name);
    }
  }
  for (const std::string& name : parameters) add("parameters " + name);
  return text;
}

}  // namespace millrace::server
