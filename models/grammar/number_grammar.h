// Whole numbers within bounds, as alternatives of digits.
//
//   IntegerEbnf(8, 12)   =>   [8-9] | "1" [0-2]
//
// Source: as a regular expression for a range is written by hand, digit by
// digit. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace millrace::models {

// In the words of xgrammar's EBNF, without brackets around it. Either bound may
// be absent; least <= most. Numbers have at most 18 digits.
std::string IntegerEbnf(std::optional<int64_t> least,
                        std::optional<int64_t> most);

}  // namespace millrace::models
