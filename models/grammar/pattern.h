// Regular expressions of clients, in the form that xgrammar takes.
//
//   ASSIGN_OR_RETURN(std::string pattern, JsonPattern("^a+"));
//   // ^(?:a+.*(?:))$
//
// Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"

namespace millrace::models {

// Counts, as in a{2,9}, have a state each up to this one; with greater ones the
// library needs up to 100 ms for a mask (measured: .{0,500} of 49,152 tokens).
inline constexpr int kMaxRepeats = 127;

// Counts inside each other multiply, as in (a{10}){10}: at most so many states.
inline constexpr int64_t kMaxNestedRepeats = 1000;

// Multiplies the counts of an expression along a walk over its parts.
class NestedRepeats {
 public:
  void Item() { last_ = 1; }  // a part that is no group, without its count
  void Open();                // of a group
  void Close();
  // Bytes of the count ("{2, 9}") at the beginning of `rest`, which belongs to
  // the part before it; 0: there is none. INVALID_ARGUMENT above
  // kMaxNestedRepeats.
  StatusOr<size_t> Count(std::string_view rest);

 private:
  std::vector<int64_t> outer_;  // largest product so far of each open group
  int64_t inside_ = 1;          // of the innermost
  int64_t last_ = 1;            // of the part before
};

// Whether `rest` begins with a count, {2, 9} or the ~ 2..9 of Lark, that has a
// number above kMaxRepeats.
bool IsGreatCount(std::string_view rest);

// INVALID_ARGUMENT names such a count of a regular expression. What stands in a
// class or behind a backslash is none. A class that never ends, which is
// refused elsewhere, hides the rest.
Status CheckRegexRepeats(std::string_view regex);

// The same of a text that holds patterns in a way that is not read here: what
// looks like a count is one, wherever it stands.
Status CheckRepeats(std::string_view text);

// The library would take these for something else: an anchor inside, a look
// ahead or behind, a group that is not closed. INVALID_ARGUMENT names the
// place.
Status CheckRegex(std::string_view regex);

// `pattern` of a JSON Schema, which may match anywhere in a string, as an
// expression for the whole string as it stands between its quotes: a quote and
// a backslash are written as JSON escapes them, control characters are refused.
StatusOr<std::string> JsonPattern(std::string_view pattern);

}  // namespace millrace::models
