// Runs a program with limits of time and of output, and gives what it wrote to
// its standard output.
//
//   ASSIGN_OR_RETURN(std::string text, RunChild({"/proc/self/exe", "x"}, input,
//                                               {.time = 10s}));
//
// Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"

namespace millrace::models {

struct ChildLimits {
  std::chrono::milliseconds time{30'000};
  size_t output_bytes = size_t{64} << 20;
};

// The exit code of a child that says: the limit of memory was met.
inline constexpr int kOutOfMemoryExit = 3;

// `input` is its standard input; its errors are dropped. DEADLINE_EXCEEDED when
// it was killed at the limit of time; RESOURCE_EXHAUSTED when it wrote too
// much, used up its processor time (SIGXCPU) or ended with kOutOfMemoryExit: it
// would do so again; UNAVAILABLE when another signal or exit code ended it.
StatusOr<std::string> RunChild(const std::vector<std::string>& arguments,
                               std::string_view input,
                               const ChildLimits& limits);

}  // namespace millrace::models
