// What a profile found, as a table and a timeline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/graph/roofline.h"
#include "models/graph/trace.h"

namespace millrace::server {

// Where the time of one run, or the mean of some, went. The steps, waiting and
// overhead together are the run.
struct RunTimes {
  // Of each step: while it ran. Where steps ran side by side, each has the part
  // of that time that its members are of all that ran.
  std::vector<double> step_ms;
  double waiting_ms = 0;   // between steps, when no member ran one
  double overhead_ms = 0;  // before the first step and after the last
  double run_ms = 0;       // as the caller saw it
  double idle_ms = 0;  // inside of steps: what members waited for each other
};

// `run_ms` is the whole call, the time in which the trace was taken included.
RunTimes TimesOf(const models::graph::Trace& trace, double run_ms);
// The mean of the quicker half of the runs: what else the machine does slows
// the others. One run at least.
RunTimes MeanOfQuickest(std::vector<RunTimes> runs);

struct ProfiledStep {
  models::graph::StepInfo info;
  double ms = 0;
};

struct Profile {
  std::vector<ProfiledStep> steps;
  double waiting_ms = 0;
  double overhead_ms = 0;
  double run_ms = 0;
  double idle_ms = 0;
  int64_t num_runs = 0;
  int64_t num_members = 1;
  int64_t arena_bytes = 0;
  models::graph::TeamRoofline roofline;
};

// The `top` longest steps (0: all), each with its share of the run, its rates
// and what limits it; then lines whose sum is the run. On a terminal of so many
// columns (0: no terminal) rows that are too long take two lines.
std::string ProfileTable(const Profile& profile, int64_t top,
                         int64_t terminal_columns = 0);

// Complete events of the Trace Event Format, which Perfetto and
// chrome://tracing show; one row for each member.
std::string TimelineJson(const models::graph::Trace& trace);

}  // namespace millrace::server
