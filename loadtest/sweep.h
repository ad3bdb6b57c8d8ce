// Measures one load after another and reads two answers off the curve: the
// knee, beyond which more load buys little more throughput but latency, and
// the highest load that meets the objectives.
//
//   ASSIGN_OR_RETURN(const SweepResult result, RunSweep(options, session));
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "loadtest/options.h"
#include "loadtest/report.h"
#include "loadtest/session.h"

namespace millrace::loadtest {

struct SweepResult {
  bool over_rate = false;
  std::vector<Report> steps;  // in the order of the loads
  std::optional<size_t> knee;
  std::optional<size_t> best;  // the highest load that meets the objectives
};

// The knee of throughput over load: the point farthest above the straight line
// from the first point to the last, both axes scaled to 1 (Satopaa et al.
// 2011, "Finding a Kneedle in a Haystack"). Nothing for fewer than three
// points, or where none lies clearly (5 %) above the line.
std::optional<size_t> FindKnee(const std::vector<double>& loads,
                               const std::vector<double>& throughputs);

// One measurement at `load` requests/s (over_rate) or at that concurrency.
StatusOr<Report> MeasureLoad(const Options& options, Session& session,
                             bool over_rate, double load);

// Calls on_step after each load.
StatusOr<SweepResult> RunSweep(
    const Options& options, Session& session,
    const std::function<void(const Report&)>& on_step);

// One row a load, then knee and best. The header row stands alone so that rows
// can be printed as they come.
std::string SweepHeader(const SweepResult& result);
std::string SweepRow(const SweepResult& result, const Report& report);
std::string SweepFooter(const SweepResult& result);

// {"format", "sweep", "steps": [...], "knee", "best"}
std::string SweepJson(const SweepResult& result);
std::string SweepCsv(const SweepResult& result);
std::string SweepHtml(const SweepResult& result);

}  // namespace millrace::loadtest
