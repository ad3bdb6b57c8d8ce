// millrace topology: the machine as this process may use it, the team that each
// model would be pinned to, and the kernel tables that it could run. The same
// planning and choice as the server's own. With --url, what a running server
// says.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "config/topology.h"
#include "models/cpu/isa.h"
#include "server/cli/args.h"
#include "server/cli/chat/http_client.h"
#include "server/cli/chat/tls_flags.h"
#include "server/cli/live_topology.h"
#include "server/lifecycle/core_allocator.h"
#include "server/lifecycle/placement.h"

namespace millrace::server {
namespace {

constexpr FlagSpec kFlags[] = {
    {"models", "N", "how many models are served (default 1)"},
    {"threads", "N", "threads asked for each model (default 0: fair share)"},
    {"instances", "N", "instances of each model, a graph (default 1)"},
    {"synthetic", "TEXT",
     "another machine, as hwloc describes it: \"numa:2 core:4 pu:2\""},
    {"url", "URL", "a running server instead: which models compute where"},
    {"api-key", "KEY", "its key (default: MILLRACE_API_KEY)"},
    kCaCertFlag,
    kCertFlag,
    kKeyFlag,
    kInsecureFlag,
};
constexpr VerbSpec kVerb = {
    "topology",
    "",
    "Shows which cores would be pinned to what, and which kernels run here; "
    "with\n--url, which cores of a running server compute for which models.",
    kFlags,
    0,
    0};

std::string ListOf(const config::CpuSet& cpus) {
  std::string text;
  for (const int cpu : cpus) {
    text += (text.empty() ? "" : " ") + std::to_string(cpu);
  }
  return text.empty() ? "any (not pinned)" : text;
}

// "  instance 0: cpus 0 2, NUMA node 0" for each.
void PrintInstances(const std::vector<InstancePlace>& places) {
  int number = 0;
  for (const InstancePlace& place : places) {
    std::printf("    instance %d: cpu%s %s, NUMA node%s %s\n", number++,
                place.cpus.size() == 1 ? "" : "s", ListOf(place.cpus).c_str(),
                place.numa_nodes.size() == 1 ? "" : "s",
                place.cpus.empty() ? "any" : ListOf(place.numa_nodes).c_str());
  }
}

// What --isa takes on this machine, whatever --synthetic says.
void PrintKernels() {
  const auto chosen = models::ChooseKernels("auto");
  std::printf("\nkernels of language models (--isa):\n");
  for (const models::IsaChoice& choice : models::ListKernels()) {
    std::string text = "can be forced";
    if (!choice.missing.empty()) {
      text = "cannot run, it lacks: " + choice.missing;
    } else if (chosen.ok() && *chosen == choice.kernels) {
      text = "chosen by auto";
    } else if (!choice.left_out.empty()) {
      text += "\n              auto leaves it out: " + choice.left_out;
    }
    std::printf("  %-10s  %s\n", choice.name, text.c_str());
    if (!choice.missing.empty()) continue;
    for (const std::string& what : choice.other_bits) {
      std::printf("              results differ: %s\n", what.c_str());
    }
  }
  const auto dense = models::ChooseDense("auto");
  const auto int8 = models::ChooseInt8("auto");
  if (!dense.ok() || !int8.ok()) return;
  std::printf("kernels of graphs: f32 by %s, int8 by %s, %s\n", (*dense)->name,
              (*int8)->name,
              models::FindBf16Products("auto") != nullptr
                  ? "bf16 faster than f32"
                  : "no bf16 that is faster than f32");
}

Status LiveTopology(const ParsedArgs& args) {
  for (const char* flag : {"models", "threads", "instances", "synthetic"}) {
    if (args.Has(flag)) {
      return UsageError("--url asks a running server; leave out --" +
                        std::string(flag));
    }
  }
  StatusOr<HttpUrl> url = ParseHttpUrl(args.Text("url", ""));
  if (!url.ok()) return UsageError(url.status().message());
  url->tls = TlsOptionsOf(args);
  const char* key = std::getenv("MILLRACE_API_KEY");
  return PrintLiveTopology(*url,
                           args.Text("api-key", key == nullptr ? "" : key));
}

Status Topology(const ParsedArgs& args) {
  if (args.Has("url")) return LiveTopology(args);
  ASSIGN_OR_RETURN(const int64_t num_models, args.Int("models", 1, 1, 1024));
  ASSIGN_OR_RETURN(const int64_t threads, args.Int("threads", 0, 0, 1024));
  ASSIGN_OR_RETURN(const int64_t instances, args.Int("instances", 1, 1, 1024));
  config::Topology::Sources sources;
  sources.hwloc_synthetic = args.Text("synthetic", "");
  ASSIGN_OR_RETURN(const config::Topology topology,
                   config::Topology::Detect(sources));
  std::fputs(topology.Describe().c_str(), stdout);

  std::vector<CoreRequest> models;
  for (int64_t i = 1; i <= num_models; ++i) {
    models.push_back({std::to_string(i), threads});
  }
  CoreAllocator cores(topology);
  cores.Reserve(models);
  std::printf("\npinned:\n");
  for (const CoreRequest& model : models) {
    const config::CpuSet team = cores.Take(model)->cpus();
    std::printf("  compute team of model %s: %zu thread%s on cpu%s %s",
                model.owner.c_str(), team.size(), team.size() == 1 ? "" : "s",
                team.size() == 1 ? "" : "s", ListOf(team).c_str());
    if (threads > static_cast<int64_t>(team.size())) {
      std::printf(" (%lld asked for, there are no more cores)",
                  static_cast<long long>(threads));
    }
    std::printf("\n");
    PrintInstances(PlacesOf(team, instances, topology));
  }
  std::printf(
      "floating over all of them: sockets, handlers, metrics (the first thread "
      "of a\nteam is its model's engine)\n");
  PrintKernels();
  return OkStatus();
}

}  // namespace

const VerbSpec& TopologyVerb() { return kVerb; }
int RunTopology(Args args) { return RunVerb(kVerb, args, Topology); }

}  // namespace millrace::server
