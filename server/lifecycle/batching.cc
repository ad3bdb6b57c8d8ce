// Checks the settings of one model against each other and against its graph.
#include "server/lifecycle/batching.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>
#include <utility>

namespace millrace::server {
namespace {

// Where the settings leave the size to us: large enough for a CPU to gain all
// there is, small enough to keep the time of one batch short.
constexpr int32_t kChosenBatchSize = 32;

StatusOr<int32_t> MaxBatchSize(const config::GraphSettings& settings,
                               const models::graph::BatchAxis& axis) {
  const auto asked = static_cast<int32_t>(settings.max_batch_size);
  if (!axis.batchable) return 1;
  if (asked > axis.max_rows) {
    return InvalidArgument("max_batch_size is " + std::to_string(asked) +
                           " but the graph takes at most " +
                           std::to_string(axis.max_rows) +
                           " rows; lower max_batch_size")
        .At("max_batch_size");
  }
  if (asked > 0) return asked;
  return static_cast<int32_t>(
      std::min<int64_t>(kChosenBatchSize, axis.max_rows));
}

StatusOr<std::vector<int32_t>> PreferredSizes(
    const std::vector<std::string>& texts, int32_t max_batch_size) {
  std::vector<int32_t> sizes;
  for (const std::string& text : texts) {
    int32_t size = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, size);
    if (error != std::errc() || stop != end || size < 1) {
      return InvalidArgument("preferred_batch_size has '" + text +
                             "' but sizes are whole numbers above 0")
          .At("preferred_batch_size");
    }
    if (size > max_batch_size) {
      return InvalidArgument("preferred_batch_size has " + text +
                             " but max_batch_size is " +
                             std::to_string(max_batch_size) +
                             "; lower the one or raise the other")
          .At("preferred_batch_size");
    }
    sizes.push_back(size);
  }
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

scheduler::QueuePolicy PolicyOf(const config::QueueLevelSettings& settings) {
  return {.timeout_action = settings.timeout_action == "delay"
                                ? scheduler::TimeoutAction::kDelay
                                : scheduler::TimeoutAction::kReject,
          .default_timeout = std::chrono::microseconds(settings.timeout_us),
          .allow_timeout_override = settings.allow_timeout_override,
          .max_queue_size = static_cast<int32_t>(settings.max_queue_size)};
}

// A request that waits behind later ones would hold up all their results.
// Source: model_config_utils.cc of Triton refuses the same.
Status CheckOrdering(const scheduler::BatchingOptions& options) {
  if (!options.preserve_ordering) return OkStatus();
  if (options.priority_levels > 1) {
    return InvalidArgument("preserve_ordering is set but priority_levels is " +
                           std::to_string(options.priority_levels) +
                           "; results leave in the order of the requests only "
                           "where there is one level: lower it or leave "
                           "preserve_ordering out")
        .At("preserve_ordering");
  }
  const auto delays = [](const scheduler::QueuePolicy& policy) {
    return policy.timeout_action == scheduler::TimeoutAction::kDelay &&
           (policy.default_timeout.count() > 0 ||
            policy.allow_timeout_override);
  };
  bool any_delays = delays(options.default_queue_policy);
  for (const auto& [level, policy] : options.priority_queue_policies) {
    any_delays = any_delays || delays(policy);
  }
  if (!any_delays) return OkStatus();
  return InvalidArgument(
             "preserve_ordering is set but timeout_action is delay, by which a "
             "request waits behind later ones; say reject or leave "
             "preserve_ordering out")
      .At("preserve_ordering");
}

// Appends the parts of so many instances of one node.
void DivideNode(const config::CpuSet& node, int64_t count,
                std::vector<config::CpuSet>& teams) {
  const auto num_cpus = static_cast<int64_t>(node.size());
  for (int64_t i = 0; i < count; ++i) {
    config::CpuSet& team = teams.emplace_back();
    if (count > num_cpus) {
      if (num_cpus > 0) team = {node[static_cast<size_t>(i % num_cpus)]};
    } else {
      team.assign(node.begin() + i * num_cpus / count,
                  node.begin() + (i + 1) * num_cpus / count);
    }
  }
}

}  // namespace

StatusOr<scheduler::BatchingOptions> BatchingOf(
    const config::GraphSettings& settings,
    const models::graph::BatchAxis& axis) {
  scheduler::BatchingOptions options;
  ASSIGN_OR_RETURN(options.max_batch_size, MaxBatchSize(settings, axis));
  // A size that was asked for is a promise to clients; ours is only a choice.
  options.refuse_larger = axis.batchable && settings.max_batch_size > 1;
  options.max_queue_delay =
      std::chrono::microseconds(settings.max_queue_delay_us);
  ASSIGN_OR_RETURN(
      options.preferred_batch_sizes,
      PreferredSizes(settings.preferred_batch_size,
                     axis.batchable
                         ? options.max_batch_size
                         : static_cast<int32_t>(settings.max_batch_size)));
  options.preserve_ordering = settings.preserve_ordering;
  options.priority_levels = static_cast<int32_t>(settings.priority_levels);
  options.default_priority_level =
      settings.default_priority_level > 0
          ? static_cast<int32_t>(settings.default_priority_level)
          : (options.priority_levels + 1) / 2;
  if (options.default_priority_level > options.priority_levels) {
    return InvalidArgument(
               "default_priority_level is " +
               std::to_string(options.default_priority_level) +
               " but priority_levels is " +
               std::to_string(options.priority_levels) +
               "; raise priority_levels or lower default_priority_level")
        .At("default_priority_level");
  }
  options.default_queue_policy =
      PolicyOf({.timeout_us = settings.queue_timeout_us,
                .timeout_action = settings.queue_timeout_action,
                .allow_timeout_override = settings.allow_timeout_override});
  for (const auto& [level, policy] : settings.priority_queue_policy) {
    if (level < 1 || level > options.priority_levels) {
      return InvalidArgument("priority_queue_policy has level " +
                             std::to_string(level) +
                             " but levels are 1 to priority_levels, which is " +
                             std::to_string(options.priority_levels))
          .At("priority_queue_policy");
    }
    options.priority_queue_policies[static_cast<int32_t>(level)] =
        PolicyOf(policy);
  }
  RETURN_IF_ERROR(CheckOrdering(options));
  return options;
}

std::vector<config::CpuSet> ByNode(const config::CpuSet& cpus,
                                   const config::Topology& topology) {
  std::map<int, config::CpuSet> nodes;
  for (const int cpu : cpus) {
    int node = 0;
    for (const config::Core& core : topology.cores()) {
      if (std::find(core.cpus.begin(), core.cpus.end(), cpu) !=
          core.cpus.end()) {
        node = core.numa_node;
      }
    }
    nodes[node].push_back(cpu);
  }
  std::vector<config::CpuSet> sets;
  for (auto& [node, of_node] : nodes) sets.push_back(std::move(of_node));
  return sets;
}

std::vector<config::CpuSet> InstanceTeams(
    const std::vector<config::CpuSet>& nodes, int64_t count) {
  const auto num_nodes = static_cast<int64_t>(nodes.size());
  if (num_nodes == 0) {
    return std::vector<config::CpuSet>(static_cast<size_t>(count));
  }
  std::vector<config::CpuSet> teams;
  if (count < num_nodes) {
    for (int64_t i = 0; i < count; ++i) {
      config::CpuSet& team = teams.emplace_back();
      for (int64_t n = i * num_nodes / count; n < (i + 1) * num_nodes / count;
           ++n) {
        const config::CpuSet& node = nodes[static_cast<size_t>(n)];
        team.insert(team.end(), node.begin(), node.end());
      }
    }
    return teams;
  }
  // One for each node, then one more where most CPUs come to an instance.
  std::vector<int64_t> counts(nodes.size(), 1);
  for (int64_t i = num_nodes; i < count; ++i) {
    size_t at = 0;
    for (size_t n = 1; n < nodes.size(); ++n) {
      if (static_cast<int64_t>(nodes[n].size()) * counts[at] >
          static_cast<int64_t>(nodes[at].size()) * counts[n]) {
        at = n;
      }
    }
    ++counts[at];
  }
  for (size_t n = 0; n < nodes.size(); ++n) {
    DivideNode(nodes[n], counts[n], teams);
  }
  return teams;
}

}  // namespace millrace::server
