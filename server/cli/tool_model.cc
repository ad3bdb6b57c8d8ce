// The server's memory check is left out: a tool runs alone and says itself
// what it needs.
#include "server/cli/tool_model.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "server/lifecycle/load.h"

namespace millrace::server {

StatusOr<ToolModel> LoadForTool(const std::string& path, const ParsedArgs& args,
                                config::LlmSettings settings) {
  ASSIGN_OR_RETURN(settings.threads,
                   args.Int("threads", settings.threads, 0, 1024));
  settings.isa = args.Text("isa", settings.isa);
  settings.compute_dtype = args.Text("compute-dtype", settings.compute_dtype);
  settings.kv_cache_dtype =
      args.Text("kv-cache-dtype", settings.kv_cache_dtype);

  ASSIGN_OR_RETURN(const config::Topology topology, config::Topology::Detect());
  config::ModelSettings model;
  model.path = path;
  model.llm = settings;
  ToolModel tool;
  tool.team = PlanTeams(topology, {model})[0];
  tool.memory_limit_bytes = topology.memory_limit_bytes();
  const bool is_terminal = isatty(STDERR_FILENO) != 0;
  ASSIGN_OR_RETURN(
      tool.model,
      models::LoadLlm(path, {.settings = settings,
                             .cpus = tool.team,
                             .memory_limit_bytes = 0,
                             .progress = [is_terminal](double done) {
                               if (!is_terminal) return;
                               std::fprintf(stderr, "\rloading %3.0f %%%s",
                                            done * 100,
                                            done < 1 ? "" : "\r\x1b[K");
                             }}));
  return tool;
}

}  // namespace millrace::server
