// millrace-loadtest: puts load on a model server and reports what it did.
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "loadtest/compare.h"
#include "loadtest/dataset.h"
#include "loadtest/options.h"
#include "loadtest/plan/plan.h"
#include "loadtest/plan/plan_options.h"
#include "loadtest/report.h"
#include "loadtest/session.h"
#include "loadtest/sweep.h"
#include "loadtest/tune.h"
#include "loadtest/tune_options.h"

namespace millrace::loadtest {
namespace {

constexpr int kMeasured = 0;
constexpr int kNothingMeasured = 1;
constexpr int kUsage = 2;
constexpr int kSloMissed = 3;

int Fail(const Status& status, int code) {
  std::fprintf(stderr, "millrace-loadtest: %s\n",
               std::string(status.message()).c_str());
  return code;
}

// Makes the text only where the file is asked for.
template <typename Text>
Status WriteIfAsked(const std::string& path, Text text) {
  return path.empty() ? OkStatus() : WriteFile(path, text());
}

StatusOr<int> RunOne(const Options& options, Session& session) {
  const Load load = LoadOf(options);
  ASSIGN_OR_RETURN(Measurement measurement, session.Measure(load));
  const Report report =
      MakeReport(options, session, load, std::move(measurement));
  std::fputs(TableText(report).c_str(), stdout);
  RETURN_IF_ERROR(
      WriteIfAsked(options.json_file, [&] { return JsonText(report); }));
  RETURN_IF_ERROR(
      WriteIfAsked(options.csv_file, [&] { return ReportCsv(report); }));
  RETURN_IF_ERROR(
      WriteIfAsked(options.html_file, [&] { return ReportHtml(report); }));
  if (report.num_ok == 0) return kNothingMeasured;
  return report.slo_met ? kMeasured : kSloMissed;
}

StatusOr<int> RunLoads(const Options& options, Session& session) {
  SweepResult header;
  header.over_rate = options.sweep.over_rate;
  std::fputs(SweepHeader(header).c_str(), stdout);
  ASSIGN_OR_RETURN(const SweepResult result,
                   RunSweep(options, session, [&](const Report& report) {
                     std::fputs(SweepRow(header, report).c_str(), stdout);
                     std::fflush(stdout);
                   }));
  std::fputs(("\n" + SweepFooter(result)).c_str(), stdout);
  RETURN_IF_ERROR(
      WriteIfAsked(options.json_file, [&] { return SweepJson(result); }));
  RETURN_IF_ERROR(
      WriteIfAsked(options.csv_file, [&] { return SweepCsv(result); }));
  RETURN_IF_ERROR(
      WriteIfAsked(options.html_file, [&] { return SweepHtml(result); }));
  bool any = false;
  for (const Report& report : result.steps) any |= report.num_ok > 0;
  if (!any) return kNothingMeasured;
  return options.slo.empty() || result.best ? kMeasured : kSloMissed;
}

StatusOr<int> RunLoad(const Options& options) {
  // Before the load, which may take hours.
  for (const std::string& path :
       {options.json_file, options.csv_file, options.html_file}) {
    if (!path.empty()) RETURN_IF_ERROR(CheckWritable(path));
  }
  ASSIGN_OR_RETURN(const auto session, Session::Open(&options));
  return options.sweep.values.empty() ? RunOne(options, *session)
                                      : RunLoads(options, *session);
}

StatusOr<int> RunCompare(const std::vector<std::string>& files) {
  if (files.size() != 2) {
    return InvalidArgument(
        "compare takes two reports, as in compare A.json "
        "B.json; " +
        std::to_string(files.size()) + " were given");
  }
  ASSIGN_OR_RETURN(const std::string before, ReadFile(files[0]));
  ASSIGN_OR_RETURN(const std::string after, ReadFile(files[1]));
  ASSIGN_OR_RETURN(const std::string text, CompareReports(before, after));
  std::fputs(text.c_str(), stdout);
  return kMeasured;
}

StatusOr<int> RunTune(const std::vector<std::string>& args) {
  ASSIGN_OR_RETURN(const TuneOptions options, ParseTuneOptions(args));
  if (options.help) {
    std::fputs(TuneHelpText().c_str(), stdout);
    return kMeasured;
  }
  ASSIGN_OR_RETURN(const TuneResult result, Tune(options));
  return result.met ? kMeasured : kSloMissed;
}

StatusOr<int> RunPlan(const std::vector<std::string>& args) {
  if (!args.empty() && args[0] == "fit") {
    ASSIGN_OR_RETURN(const FitOptions options,
                     ParseFitOptions({args.begin() + 1, args.end()}));
    RETURN_IF_ERROR(Fit(options));
    return kMeasured;
  }
  ASSIGN_OR_RETURN(const PlanOptions options, ParsePlanOptions(args));
  if (options.help) {
    std::fputs(PlanHelpText().c_str(), stdout);
    return kMeasured;
  }
  ASSIGN_OR_RETURN(const PlanResult result, Plan(options));
  std::fputs(PlanText(options, result).c_str(), stdout);
  std::fputs(PlanPlots(options, result).c_str(), stdout);
  RETURN_IF_ERROR(WriteIfAsked(options.load.json_file,
                               [&] { return PlanJson(options, result); }));
  RETURN_IF_ERROR(WriteIfAsked(options.load.html_file,
                               [&] { return PlanHtml(options, result); }));
  if (options.load.slo.empty()) return kMeasured;
  for (const PlanStep& step : result.steps) {
    if (step.slo_met) return kMeasured;
  }
  return kSloMissed;
}

int Finish(const StatusOr<int>& code) {
  if (code.ok()) return *code;
  const bool usage = code.status().code() == StatusCode::kInvalidArgument;
  return Fail(code.status(), usage ? kUsage : kNothingMeasured);
}

int Main(const std::vector<std::string>& args) {
  if (!args.empty() && args[0] == "compare") {
    return Finish(RunCompare({args.begin() + 1, args.end()}));
  }
  if (!args.empty() && args[0] == "plan") {
    return Finish(RunPlan({args.begin() + 1, args.end()}));
  }
  if (!args.empty() && args[0] == "tune") {
    return Finish(RunTune({args.begin() + 1, args.end()}));
  }
  const StatusOr<Options> options = ParseOptions(args);
  if (!options.ok()) return Fail(options.status(), kUsage);
  if (options->help) {
    std::fputs(HelpText().c_str(), stdout);
    return kMeasured;
  }
  return Finish(RunLoad(*options));
}

}  // namespace
}  // namespace millrace::loadtest

int main(int argc, char** argv) {
  return millrace::loadtest::Main({argv + 1, argv + argc});
}
