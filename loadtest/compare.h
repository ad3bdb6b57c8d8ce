// Two reports side by side: what got better, what got worse, and whether the
// loads were the same at all.
//
//   ASSIGN_OR_RETURN(std::string text, CompareReports(before, after));
#pragma once

#include <string>
#include <string_view>

#include "config/base/status.h"

namespace millrace::loadtest {

// Both are texts of --json. A change is called better or worse only where it
// is larger than the confidence intervals of both (or, without --repetitions,
// than 5 %).
StatusOr<std::string> CompareReports(std::string_view before,
                                     std::string_view after);

}  // namespace millrace::loadtest
