// Regular expressions of a tokenizer.json are written for Oniguruma (in its
// Ruby syntax); here they become PCRE2's where the two differ.
//
//   Pcre2FromOniguruma("\\s+(?!\\S)")  →
//   "\\p{White_Space}+(?!\\P{White_Space})"
#pragma once

#include <string>
#include <string_view>

#include "config/base/status.h"

namespace millrace::models {

// UNIMPLEMENTED names a construct that has no equal or is not known here. What
// neither would take is left for PCRE2 to refuse.
StatusOr<std::string> Pcre2FromOniguruma(std::string_view pattern);

}  // namespace millrace::models
