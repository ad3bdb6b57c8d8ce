// Grammars of llama.cpp (GBNF) in the words of xgrammar, whose EBNF is nearly
// the same: `.` is any character, {,3} is {0,3}, an alternative may be empty.
//
//   ASSIGN_OR_RETURN(std::string ebnf, EbnfOfGbnf("root ::= .{,3}"));
//
// Source: grammars/README.md of llama.cpp. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"

namespace millrace::models {

// INVALID_ARGUMENT for what has no counterpart, tokens by name or number, and
// for counts above kMaxRepeats.
StatusOr<std::string> EbnfOfGbnf(std::string_view gbnf);

// A grammar of these texts alone.
std::string EbnfOfChoices(const std::vector<std::string>& choices);

}  // namespace millrace::models
