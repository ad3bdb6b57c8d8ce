// Where the values of a plan lie in one arena: two values share bytes only when
// their lives do not meet.
//
//   steps     0 1 2 3 4
//   a         #####            a at 0
//   b           #######        b behind a
//   c               ###        c at 0 again
//
// Largest first, each at the lowest place where it fits: the heuristic of
// "Efficient Memory Management for Deep Neural Net Inference" (Pisarchyk and
// Lee, 2020, section 5), greedy by size.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace::models::graph {

struct Lifetime {
  int64_t bytes = 0;
  int32_t first = 0;  // the step that writes it
  int32_t last = 0;   // the last step that reads it
};

struct MemoryPlan {
  std::vector<int64_t> offsets;  // in the order of the lifetimes, of 64 bytes
  int64_t bytes = 0;
};

MemoryPlan PlanMemory(const std::vector<Lifetime>& lifetimes);

}  // namespace millrace::models::graph
