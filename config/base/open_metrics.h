// Collected metrics as OpenMetrics text 1.0.0, which prometheus-cpp does not
// write: the text format with an end mark, and with exemplars, by which a
// dashboard goes from a slow bucket to the trace of a request in it.
//
//   millrace_x_seconds_bucket{le="1.0"} 3 # {trace_id="4bf9…"} 0.7 1795742686.5
//
// A counter's samples must end in _total here; one that other servers name
// without it is shown with type "unknown" and keeps its name.
// Source: OpenMetrics 1.0.0, sections 5.1 (ABNF) and 5.2.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace prometheus {
struct MetricFamily;
}  // namespace prometheus

namespace millrace {

struct Exemplar {
  std::string trace_id;  // empty: there is none
  double value = 0;
  double unix_seconds = 0;
};

// By the name and labels of a histogram: one for each bucket, the last is that
// of +Inf.
using ExemplarTable =
    std::map<std::pair<std::string, std::map<std::string, std::string>>,
             std::vector<Exemplar>>;

std::string OpenMetricsText(
    const std::vector<prometheus::MetricFamily>& families,
    const ExemplarTable& exemplars);

}  // namespace millrace
