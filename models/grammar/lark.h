// Grammars in Lark, which the library reads itself: what is looked at before.
//
//   RETURN_IF_ERROR(CheckLark(text));
//
// Source: the grammar of Lark's grammars (lark.lark), and what xgrammar adds to
// it: counts in braces, tokens (<name>), %json and %regex. A pure function.
#pragma once

#include <string_view>

#include "config/base/status.h"

namespace millrace::models {

// INVALID_ARGUMENT for a count above kMaxRepeats (pattern.h): behind `~`, in
// braces, within a regular expression.
Status CheckLark(std::string_view lark);

}  // namespace millrace::models
