// The server's memory check is left out: a tool runs alone and says itself
// what it needs.
#include "server/cli/tool_model.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "server/lifecycle/load.h"

namespace millrace::server {

std::function<void(double)> ProgressLine(const char* what) {
  if (isatty(STDERR_FILENO) == 0) return {};
  return [what](double done) {
    std::fprintf(stderr, "\r%s %3.0f %%%s", what, done * 100,
                 done < 1 ? "" : "\r\x1b[K");
  };
}

StatusOr<config::CpuSet> TeamFor(int64_t threads) {
  ASSIGN_OR_RETURN(const config::Topology topology, config::Topology::Detect());
  config::ModelSettings model;
  model.common.threads = threads;
  return PlanTeams(topology, {model})[0];
}

StatusOr<ToolModel> LoadForTool(const std::string& path, const ParsedArgs& args,
                                config::LlmSettings settings) {
  config::ModelSettings model;
  model.path = path;
  ASSIGN_OR_RETURN(model.common.threads,
                   args.Int("threads", model.common.threads, 0, 1024));
  model.common.isa = args.Text("isa", model.common.isa);
  settings.compute_dtype = args.Text("compute-dtype", settings.compute_dtype);
  settings.quantize = args.Text("quantize", settings.quantize);
  settings.kv_cache_dtype =
      args.Text("kv-cache-dtype", settings.kv_cache_dtype);

  ASSIGN_OR_RETURN(const config::Topology topology, config::Topology::Detect());
  ToolModel tool;
  tool.team = PlanTeams(topology, {model})[0];
  tool.memory_limit_bytes = topology.memory_limit_bytes();
  ASSIGN_OR_RETURN(
      tool.model, models::LoadLlm(path, {.settings = settings,
                                         .isa = model.common.isa,
                                         .cpus = tool.team,
                                         .memory_limit_bytes = 0,
                                         .progress = ProgressLine("loading")}));
  return tool;
}

}  // namespace millrace::server
