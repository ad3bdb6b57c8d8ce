// Service level objectives: "ttft:p99:500ms,itl:p99:50ms,latency:p99:2s".
//
//   ASSIGN_OR_RETURN(const Slo slo, ParseSlo("ttft:p99:500ms"));
//
// Each objective bounds one statistic of one metric over a run. Goodput counts
// single requests: a request is good when its own time to first token, its own
// mean time per output token (for itl and tpot) and its own latency are within
// the limits, whatever the statistic.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"

namespace millrace::loadtest {

enum class Metric { kTtft, kItl, kTpot, kLatency };

std::string_view MetricName(Metric metric);  // "ttft"

struct Objective {
  Metric metric = Metric::kLatency;
  std::string statistic;   // "p99", "p99.9", "mean", "max"
  double percentile = 99;  // of a pNN statistic; -1: mean, 100: max
  std::chrono::nanoseconds limit{0};
};

using Slo = std::vector<Objective>;

StatusOr<Slo> ParseSlo(std::string_view text);

// "500ms", "2s", "1.5s", "20us", "3m", "1h"; a bare number is an error that
// names the units.
StatusOr<std::chrono::nanoseconds> ParseDuration(std::string_view text);

// Is a request with these times good? Times below 0 do not apply.
bool MeetsSlo(const Slo& slo, std::chrono::nanoseconds ttft,
              std::chrono::nanoseconds tpot, std::chrono::nanoseconds latency);

}  // namespace millrace::loadtest
