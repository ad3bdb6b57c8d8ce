// Ends a run whose results are not needed any more.
#pragma once

#include <functional>

#include "config/base/status.h"

namespace millrace::models::graph {

// Asked between steps, by any thread of the team; what is not OK ends the run
// and is its status. Empty: never.
using StopCheck = std::function<Status()>;

}  // namespace millrace::models::graph
