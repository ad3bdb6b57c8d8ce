// Where the time of a capture went, in sentences: for each model how long it
// was idle, its prefill and decode, its phases; how long requests waited; what
// ran beside steps.
#pragma once

#include <string>
#include <vector>

#include "config/base/timeline.h"

namespace millrace::server {

std::vector<std::string> Breakdown(const TimelineCapture& capture);

}  // namespace millrace::server
