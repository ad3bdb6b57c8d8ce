// Values of flags, read from text. Every error names the flag, the value and
// what is allowed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/status.h"
#include "loadtest/options.h"

namespace millrace::loadtest {

StatusOr<int64_t> ParseInt(std::string_view flag, std::string_view text,
                           int64_t least, int64_t most);
StatusOr<double> ParseReal(std::string_view flag, std::string_view text,
                           double least, double most);
// "name:value", spaces around the value removed.
StatusOr<std::pair<std::string, std::string>> ParsePair(std::string_view flag,
                                                        std::string_view text);
// "128" or "128:32"; empty gives a mean of 0.
StatusOr<TokenCount> ParseTokenCount(std::string_view flag,
                                     std::string_view text);
// "input:1,3,224,224"
StatusOr<std::pair<std::string, std::vector<int64_t>>> ParseShape(
    std::string_view text);
// "concurrency=1,2,4" or "request-rate=2.5,5", rising.
StatusOr<Sweep> ParseSweep(std::string_view text);
// "0,1", each one of this process' CPUs; empty gives none.
StatusOr<std::vector<int>> ParseCpus(std::string_view text);

// The word with the least edit distance; empty when each differs from it in
// more than a third of its letters.
std::string Nearest(std::string_view word,
                    const std::vector<std::string>& known);

}  // namespace millrace::loadtest
