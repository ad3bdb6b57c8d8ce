// millrace bench: tokens per second of the bare model, beside what the machine
// allows. Two things bound a step: the bytes it must read (all weights once,
// the keys and values of every sequence) and the multiply-adds it must do; each
// line tells both, against ceilings measured in the same run. With a batch the
// weights are read once for all of it, so tokens/s may pass the bandwidth of
// one stream.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/base/json.h"
#include "models/llm/source.h"
#include "server/cli/args.h"
#include "server/cli/bench_report.h"
#include "server/cli/bench_steps.h"
#include "server/cli/model_kind.h"
#include "server/cli/tool_model.h"

namespace millrace::server {
namespace {

constexpr FlagSpec kFlags[] = {
    {"prefill", "N", "tokens of prompt to read (default 512, 0: none)"},
    {"decode", "N", "tokens to answer (default 128, 0: none)"},
    {"batch", "N,N", "sequences that answer together (default 1,4,16)"},
    {"depth", "N,N", "tokens already in the cache (default 0,8192)"},
    {"reps", "N", "counted repetitions of each, after a warm-up (default 3)"},
    {"json", "FILE", "the figures as JSON too"},
    kThreadsFlag,
    kIsaFlag,
    kDeviceFlag,
    kComputeFlag,
    kGemmFlag,
    kQuantizeFlag,
    kKvFlag,
};
constexpr VerbSpec kVerb = {
    "bench",
    "MODEL",
    "Tokens per second of the bare model with the bytes and multiply-adds they "
    "cost,\nbeside the machine's measured limits. Run it on a quiet machine.",
    kFlags,
    1,
    1};

struct Wanted {
  int64_t prefill = 512;
  int64_t decode = 128;
  std::vector<int64_t> batches;
  std::vector<int64_t> depths;
  int64_t reps = 3;
};

class Bench {
 public:
  Bench(ToolModel& tool, int64_t reps)
      : tool_(tool), reps_(reps), steps_(*tool.model.runner) {}

  StatusOr<BenchCase> Prefill(int64_t depth, int64_t count) {
    const BenchCase row = Shape("pp", 1, depth, count);
    return Measure(row, count,
                   [&] { return steps_.Prefill(row.depth, count); });
  }

  StatusOr<BenchCase> Decode(int64_t batch, int64_t depth, int64_t count) {
    const BenchCase row = Shape("tg", batch, depth, count);
    return Measure(row, count,
                   [&] { return steps_.Decode(batch, row.depth, count); });
  }

 private:
  // A depth beyond the context is cut to what leaves room for the work.
  BenchCase Shape(const char* kind, int64_t batch, int64_t depth,
                  int64_t count) const {
    BenchCase row;
    row.name = kind + std::to_string(count);
    row.batch = batch;
    row.depth = std::clamp<int64_t>(
        tool_.model.runner->info().max_context - count, 0, depth);
    row.tokens = batch * count;
    return row;
  }

  template <typename Body>
  StatusOr<BenchCase> Measure(BenchCase row, int64_t count, Body body) {
    const models::LlmInfo& info = tool_.model.info;
    const models::RunnerInfo& runner = tool_.model.runner->info();
    if (count > runner.max_context) {
      row.skipped = "the context is " + std::to_string(runner.max_context);
      return row;
    }
    const int64_t needed = info.weight_bytes + row.batch * (row.depth + count) *
                                                   info.kv_bytes_per_token;
    if (needed > tool_.memory_limit_bytes / 10 * 8) {
      row.skipped = "it needs " + std::to_string(needed >> 20) + " MiB of " +
                    std::to_string(tool_.memory_limit_bytes >> 20);
      return row;
    }
    RETURN_IF_ERROR(steps_.Fill(static_cast<int32_t>(row.batch),
                                static_cast<int32_t>(row.depth),
                                static_cast<int32_t>(count)));
    for (int64_t i = 0; i <= reps_; ++i) {
      ASSIGN_OR_RETURN(const BenchRun run, body());
      row.weight_bytes = run.weight_bytes;
      row.kv_bytes = run.kv_bytes;
      row.linear_macs = run.macs;
      row.prompt_macs = run.prompt_macs;
      if (i > 0) row.seconds.push_back(run.seconds);
    }
    return row;
  }

  ToolModel& tool_;
  const int64_t reps_;
  BenchSteps steps_;
};

StatusOr<Wanted> ReadWanted(const ParsedArgs& args) {
  Wanted wanted;
  ASSIGN_OR_RETURN(wanted.prefill, args.Int("prefill", 512, 0, 1 << 20));
  ASSIGN_OR_RETURN(wanted.decode, args.Int("decode", 128, 0, 1 << 20));
  ASSIGN_OR_RETURN(wanted.batches, args.Ints("batch", {1, 4, 16}, 1, 1024));
  ASSIGN_OR_RETURN(wanted.depths, args.Ints("depth", {0, 8192}, 0, 1 << 24));
  ASSIGN_OR_RETURN(wanted.reps, args.Int("reps", 3, 1, 1000));
  return wanted;
}

StatusOr<ToolModel> Load(const std::string& path, const ParsedArgs& args,
                         const Wanted& wanted,
                         const models::ModelSource& source) {
  config::LlmSettings settings;
  // One sequence more than the largest batch: its pages hold what is copied.
  settings.max_num_seqs =
      1 + std::max<int64_t>(16, *std::max_element(wanted.batches.begin(),
                                                  wanted.batches.end()));
  const int64_t longest =
      *std::max_element(wanted.depths.begin(), wanted.depths.end()) +
      std::max(wanted.prefill, wanted.decode);
  ASSIGN_OR_RETURN(const int64_t trained,
                   source.Int("context_length", longest));
  settings.max_model_len = std::max<int64_t>(1, std::min(longest, trained));
  // Address space only: a page costs memory once it is used.
  settings.kv_cache_memory_bytes = int64_t{1} << 46;
  return LoadForTool(path, args, settings);
}

Status WriteJson(const std::string& path, const BenchReport& report) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << DumpJson(ReportJson(report)) << "\n";
  out.flush();
  if (out) return OkStatus();
  return FailedPrecondition("'" + path + "' cannot be written");
}

Status RunCases(const Wanted& wanted, ToolModel& tool, BenchReport& report) {
  Bench bench(tool, wanted.reps);
  const auto add = [&](StatusOr<BenchCase> row) -> Status {
    RETURN_IF_ERROR(row.status());
    std::fputs(TableRow(*row, report.roofline).c_str(), stdout);
    std::fflush(stdout);
    report.cases.push_back(std::move(row).value());
    return OkStatus();
  };
  for (const int64_t depth : wanted.depths) {
    if (wanted.prefill > 0) {
      RETURN_IF_ERROR(add(bench.Prefill(depth, wanted.prefill)));
    }
    for (const int64_t batch : wanted.batches) {
      if (wanted.decode == 0) continue;
      RETURN_IF_ERROR(add(bench.Decode(batch, depth, wanted.decode)));
    }
  }
  return OkStatus();
}

Status MeasureModel(const ParsedArgs& args) {
  ASSIGN_OR_RETURN(const Wanted wanted, ReadWanted(args));
  BenchReport report;
  report.path = args.positional()[0];
  RETURN_IF_ERROR(ExpectKind(report.path, FileKind::kLanguageModel, "bench"));
  ToolModel tool;
  {
    ASSIGN_OR_RETURN(const auto source, models::OpenModelSource(report.path));
    ASSIGN_OR_RETURN(tool, Load(report.path, args, wanted, *source));
  }
  report.info = tool.model.info;
  report.roofline = tool.model.runner->MeasureRoofline();
  std::fputs(MachineText(report).c_str(), stdout);
  std::fputs(TableHeader().c_str(), stdout);
  RETURN_IF_ERROR(RunCases(wanted, tool, report));
  const int64_t context = tool.model.runner->info().max_context;
  if (*std::max_element(wanted.depths.begin(), wanted.depths.end()) +
          std::max(wanted.prefill, wanted.decode) >
      context) {
    std::printf(
        "\nA depth was cut to what the context of %lld tokens leaves.\n",
        static_cast<long long>(context));
  }
  if (args.Has("json")) return WriteJson(args.Text("json", ""), report);
  return OkStatus();
}

}  // namespace

const VerbSpec& BenchVerb() { return kVerb; }
int RunBench(Args args) { return RunVerb(kVerb, args, MeasureModel); }

}  // namespace millrace::server
