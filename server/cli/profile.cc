// millrace profile: where a graph's time goes, step by step, beside what the
// team's cores could do.
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "models/graph/execution_context.h"
#include "models/graph/import.h"
#include "server/cli/args.h"
#include "server/cli/graph_inputs.h"
#include "server/cli/graph_options.h"
#include "server/cli/model_kind.h"
#include "server/cli/profile_picture.h"
#include "server/cli/profile_report.h"

namespace millrace::server {
namespace {

namespace graph = models::graph;

constexpr FlagSpec kFlags[] = {
    kInputFlag,
    kSizesFlag,
    {"iters", "N", "runs that are timed (default 20)"},
    {"top", "N", "steps to show, the longest first (default 25; 0: all)"},
    {"trace", "FILE", "timeline of the last run for Perfetto, as JSON"},
    {"svg", "FILE", "picture of the optimised graph, for a browser"},
    {"dot", "FILE", "the same for Graphviz"},
    kDeviceFlag,
    kPrecisionFlag,
    kGemmFlag,
    kConvFlag,
    kGraphBackendFlag,
    kQuantizationFlag,
    kThreadsFlag,
    kIsaFlag,
};
constexpr VerbSpec kVerb = {
    "profile",
    "MODEL",
    "Time, GFLOP/s and GB/s of each step that an ONNX or PyTorch (.pt2) graph\n"
    "is made of once its input sizes are known, beside what limits it on this\n"
    "machine: products (f32, bf16, int8) or reading (L2, L3, DRAM). Run it on "
    "a\n"
    "quiet machine.",
    kFlags,
    1,
    1};

constexpr int64_t kWarmUps = 3;

StatusOr<Profile> Measure(graph::ExecutionContext& context,
                          const std::vector<models::Tensor>& inputs,
                          int64_t iters, graph::Trace& trace) {
  using Clock = std::chrono::steady_clock;
  std::vector<RunTimes> runs;
  for (int64_t i = -kWarmUps; i < iters; ++i) {
    const auto begun = Clock::now();
    RETURN_IF_ERROR(context.Run(inputs, {.trace = &trace}).status());
    const std::chrono::duration<double, std::milli> took = Clock::now() - begun;
    if (trace.steps.empty()) {
      return FailedPrecondition(
          "the shapes of this graph depend on its data, so it is interpreted "
          "and has no steps to profile; millrace run --iters N times the "
          "whole");
    }
    if (i >= 0) runs.push_back(TimesOf(trace, took.count()));
  }
  const RunTimes mean = MeanOfQuickest(std::move(runs));
  Profile profile;
  for (size_t s = 0; s < mean.step_ms.size(); ++s) {
    profile.steps.push_back({trace.steps[s], mean.step_ms[s]});
  }
  profile.waiting_ms = mean.waiting_ms;
  profile.overhead_ms = mean.overhead_ms;
  profile.run_ms = mean.run_ms;
  profile.idle_ms = mean.idle_ms;
  profile.num_runs = iters;
  profile.num_members = static_cast<int64_t>(trace.spans.size());
  profile.arena_bytes = context.ArenaBytes();
  ASSIGN_OR_RETURN(profile.roofline, context.MeasureRoofline());
  return profile;
}

// Of stdout; 0 when it is no terminal.
int64_t TerminalColumns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file) return OkStatus();
  return FailedPrecondition("'" + path + "' cannot be written");
}

Status Run(const ParsedArgs& args) {
  ASSIGN_OR_RETURN(const int64_t iters, args.Int("iters", 20, 1, 1 << 20));
  ASSIGN_OR_RETURN(const int64_t top, args.Int("top", 25, 0, 1 << 20));
  const std::string& path = args.positional()[0];
  RETURN_IF_ERROR(ExpectKind(path, FileKind::kGraph, "profile"));
  ASSIGN_OR_RETURN(const graph::InstanceOptions options,
                   GraphOptions(args, path));
  ASSIGN_OR_RETURN(graph::Graph graph, graph::ImportGraph(path, nullptr));
  ASSIGN_OR_RETURN(const GraphRun run,
                   PrepareGraphRun(args, std::move(graph), options));
  const auto& [context, inputs] = run;
  if (args.Has("input")) {
    std::fputs(InputsText(args, *context, inputs).c_str(), stdout);
    std::fflush(stdout);
  }
  graph::Trace trace;
  ASSIGN_OR_RETURN(const Profile profile,
                   Measure(*context, inputs, iters, trace));
  std::fputs(ProfileTable(profile, top, TerminalColumns()).c_str(), stdout);
  if (args.Has("trace")) {
    RETURN_IF_ERROR(WriteFile(args.Text("trace", ""), TimelineJson(trace)));
  }
  if (args.Has("svg")) {
    RETURN_IF_ERROR(WriteFile(args.Text("svg", ""), PictureSvg(profile)));
  }
  if (args.Has("dot")) {
    RETURN_IF_ERROR(WriteFile(args.Text("dot", ""), PictureDot(profile)));
  }
  return OkStatus();
}

}  // namespace

const VerbSpec& ProfileVerb() { return kVerb; }
int RunProfile(Args args) { return RunVerb(kVerb, args, Run); }

}  // namespace millrace::server
