// The server's memory check is left out: a tool runs alone and says itself
// what it needs.
#include "server/cli/tool_model.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "config/base/terminal.h"
#include "server/lifecycle/core_allocator.h"
#include "server/lifecycle/load_graph.h"

namespace millrace::server {
namespace {

config::CpuSet TeamOf(const config::Topology& topology, int64_t threads) {
  CoreAllocator cores(topology);
  cores.Reserve({{"tool", threads}});
  return cores.Take({"tool", threads})->cpus();
}

}  // namespace

std::function<void(double)> ProgressLine(const char* what) {
  if (!ObeysEscapes(STDERR_FILENO)) return {};
  return [what](double done) {
    std::fprintf(stderr, "\r%s %3.0f %%%s", what, done * 100,
                 done < 1 ? "" : "\r\x1b[K");
  };
}

std::function<void(double)> ProgressLines(const char* what) {
  if (ObeysEscapes(STDERR_FILENO)) return ProgressLine(what);
  return [what, tenths = 0](double done) mutable {
    const auto now = static_cast<int>(done * 10);
    if (now <= tenths) return;
    tenths = now;
    std::fprintf(stderr, "%s %d %%\n", what, tenths * 10);
  };
}

StatusOr<config::CpuSet> TeamFor(int64_t threads) {
  ASSIGN_OR_RETURN(const config::Topology topology, config::Topology::Detect());
  return TeamOf(topology, threads);
}

StatusOr<ToolModel> LoadForTool(const std::string& path, const ParsedArgs& args,
                                config::LlmSettings settings) {
  config::CommonSettings common;
  ASSIGN_OR_RETURN(common.threads,
                   args.Int("threads", common.threads, 0, 1024));
  common.isa = args.Text("isa", common.isa);
  common.device = args.Text("device", common.device);
  // A GPU's memory is taken, not only its addresses.
  if (common.device != "cpu") settings.kv_cache_memory_bytes = 0;
  settings.compute_dtype = args.Text("compute-dtype", settings.compute_dtype);
  settings.gemm_backend = args.Text("gemm-backend", settings.gemm_backend);
  settings.quantize = args.Text("quantize", settings.quantize);
  settings.kv_cache_dtype =
      args.Text("kv-cache-dtype", settings.kv_cache_dtype);

  ASSIGN_OR_RETURN(const config::Topology topology, config::Topology::Detect());
  ToolModel tool;
  tool.team = TeamOf(topology, common.threads);
  if (common.threads > static_cast<int64_t>(tool.team.size())) {
    std::fprintf(stderr,
                 "--threads is %lld but this process may use %zu physical "
                 "cores: %zu compute\n",
                 static_cast<long long>(common.threads), tool.team.size(),
                 tool.team.size());
  }
  tool.memory_limit_bytes = topology.memory_limit_bytes();
  ASSIGN_OR_RETURN(
      tool.model, models::LoadLlm(path, {.settings = settings,
                                         .isa = common.isa,
                                         .device = common.device,
                                         .cpus = tool.team,
                                         .memory_limit_bytes = 0,
                                         .progress = ProgressLine("loading")}));
  return tool;
}

}  // namespace millrace::server
