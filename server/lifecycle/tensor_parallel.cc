#include "server/lifecycle/tensor_parallel.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "models/llm/group_runner.h"
#include "models/llm/model.h"
#include "server/lifecycle/core_allocator.h"
#include "server/lifecycle/load_embedding.h"
#include "server/lifecycle/load_graph.h"

namespace millrace::server {
namespace {

// Where a rank may run.
struct RankHost {
  char name[256];
  cpu_set_t allowed;
};

Status Refuse(const char* field, const std::string& why) {
  return Unimplemented("tensor_parallel_size above 1 is not supported " + why)
      .At(field);
}

Status CheckServer(const config::ServerSettings& server) {
  if (!server.model_repository.empty()) {
    return Refuse("model_repository",
                  "with a model_repository; name the one model to serve");
  }
  if (server.allow_runtime_lora_updating) {
    return Refuse("allow_runtime_lora_updating",
                  "with LoRA adapters; leave allow_runtime_lora_updating out");
  }
  return OkStatus();
}

Status CheckModel(const config::ModelSettings& model) {
  const config::LlmSettings& llm = model.llm;
  if (IsGraphFile(model.path) || IsEmbeddingModel(model)) {
    return Refuse("tensor_parallel_size", "for '" + model.path +
                                              "', which is no language model "
                                              "that writes; leave it out");
  }
  const std::string& device = model.common.device;
  if (device != "cpu" && !device.starts_with("cuda")) {
    return Refuse("device", "on device '" + device +
                                "'; cpu is, and cuda, one GPU a rank");
  }
  if (!llm.lora_modules.empty()) {
    return Refuse("lora_modules", "with LoRA adapters; leave lora_modules out");
  }
  if (!llm.speculative_model.empty()) {
    return Refuse("speculative_model",
                  "with a draft model; leave speculative_model out");
  }
  if (!llm.kv_cache_dir.empty()) {
    return Refuse("kv_cache_dir",
                  "with KV pages in a folder; leave kv_cache_dir out");
  }
  return OkStatus();
}

}  // namespace

StatusOr<int64_t> TensorParallelSize(const config::Settings& settings) {
  int64_t size = settings.llm.tensor_parallel_size;
  for (const config::ModelSettings& model : settings.models) {
    size = std::max(size, model.llm.tensor_parallel_size);
  }
  if (size == 1) return size;
  RETURN_IF_ERROR(CheckServer(settings.server));
  if (settings.models.size() != 1) {
    return Refuse("tensor_parallel_size",
                  "for " + std::to_string(settings.models.size()) +
                      " models at once; name one");
  }
  RETURN_IF_ERROR(CheckModel(settings.models.front()));
  return size;
}

StatusOr<config::CpuSet> CoresOfRank(models::Group& group,
                                     const config::Topology& topology,
                                     const config::CommonSettings& common,
                                     const config::CpuSet& leased) {
  RankHost own{};
  gethostname(own.name, sizeof own.name - 1);
  sched_getaffinity(0, sizeof own.allowed, &own.allowed);
  std::vector<RankHost> all(static_cast<size_t>(group.size()));
  RETURN_IF_ERROR(group.AllGather(std::as_bytes(std::span(&own, 1)),
                                  std::as_writable_bytes(std::span(all)),
                                  models::Patience::kIdle));
  const bool shared = std::ranges::all_of(all, [&](const RankHost& other) {
    return std::strcmp(other.name, own.name) != 0 ||
           CPU_EQUAL(&other.allowed, &own.allowed);
  });
  const int local = group.local_size();
  if (local == 1 || !shared || !common.cpu_cores.empty()) return leased;
  const config::CpuSet cpus =
      common.threads > 0
          ? topology.PhysicalCores(static_cast<int>(common.threads) * local)
          : leased;
  const size_t count = common.threads > 0
                           ? static_cast<size_t>(common.threads)
                           : cpus.size() / static_cast<size_t>(local);
  config::CpuSet team;
  for (size_t i = 0; i < std::max<size_t>(count, 1); ++i) {
    const size_t at =
        static_cast<size_t>(group.local_rank()) * std::max<size_t>(count, 1) +
        i;
    if (!cpus.empty()) team.push_back(cpus[at % cpus.size()]);
  }
  std::ranges::sort(team);
  const auto repeated = std::ranges::unique(team);
  team.erase(repeated.begin(), repeated.end());
  return team;
}

int64_t MemoryOfRank(const models::Group& group,
                     const config::Topology& topology) {
  return topology.memory_limit_bytes() / group.local_size();
}

Status FollowRankZero(const config::Settings& settings,
                      const std::shared_ptr<models::Group>& group) {
  const config::ModelSettings& model = settings.models.front();
  ASSIGN_OR_RETURN(const config::Topology topology, config::Topology::Detect());
  CoreAllocator cores(topology);
  ASSIGN_OR_RETURN(const CoreRequest wanted, CoresFor(model));
  RETURN_IF_ERROR(cores.Check(wanted));
  const auto lease = cores.Take(wanted);
  ASSIGN_OR_RETURN(const config::CpuSet team,
                   CoresOfRank(*group, topology, model.common, lease->cpus()));
  ASSIGN_OR_RETURN(
      const models::LlmModel loaded,
      models::LoadLlm(model.path,
                      {.settings = model.llm,
                       .isa = model.common.isa,
                       .device = model.common.device,
                       .cpus = team,
                       .memory_limit_bytes = MemoryOfRank(*group, topology),
                       .progress = {},
                       .group = group}));
  return models::FollowSteps(*loaded.runner, *group);
}

}  // namespace millrace::server
