// A capture as the JSON that Perfetto (ui.perfetto.dev) and chrome://tracing
// open: one process for each model and for the server, one thread for each
// track, times in microseconds since the capture began.
//
// Source: "Trace Event Format", complete (X), nestable asynchronous (b, e) and
// metadata (M) events.
#pragma once

#include <string>
#include <vector>

#include "config/base/timeline.h"

namespace millrace::server {

// `words` stand under otherData.breakdown.
std::string TimelineJson(const TimelineCapture& capture,
                         const std::vector<std::string>& words);

}  // namespace millrace::server
