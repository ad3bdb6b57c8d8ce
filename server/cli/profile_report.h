// What a profile found, as a table, a timeline and a picture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/graph/peaks.h"
#include "models/graph/trace.h"

namespace millrace::server {

struct ProfiledStep {
  models::graph::StepInfo info;
  double median_ms = 0;  // of its slowest member
};

struct Profile {
  std::vector<ProfiledStep> steps;
  double run_ms = 0;  // median of whole runs
  int64_t arena_bytes = 0;
  models::graph::TeamPeaks peaks;
};

// How long step `i` took in one run, on the member that took longest. Steps of
// one stage overlap: all together may be more than the run.
double StepMs(const models::graph::Trace& trace, size_t i);

// The `top` longest steps (0: all) with their shares of time and of the peaks,
// then a line of sums.
std::string ProfileTable(const Profile& profile, int64_t top);

// Complete events of the Trace Event Format, which Perfetto and
// chrome://tracing show; one row for each member.
std::string TimelineJson(const models::graph::Trace& trace);

// The steps and what flows between them for Graphviz (dot -Tsvg); the more of
// the time a step takes, the redder it is.
std::string PictureDot(const Profile& profile);

}  // namespace millrace::server
