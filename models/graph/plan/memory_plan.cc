#include "models/graph/plan/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace millrace::models::graph {
namespace {

constexpr int64_t kAlignment = 64;

int64_t Aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool Meet(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

}  // namespace

MemoryPlan PlanMemory(const std::vector<Lifetime>& lifetimes) {
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return lifetimes[a].bytes > lifetimes[b].bytes;
  });
  MemoryPlan plan;
  plan.offsets.resize(lifetimes.size());
  std::vector<size_t> placed;  // by offset
  for (const size_t id : order) {
    const int64_t bytes = Aligned(lifetimes[id].bytes);
    int64_t at = 0;
    for (const size_t other : placed) {
      if (!Meet(lifetimes[id], lifetimes[other])) continue;
      if (plan.offsets[other] >= at + bytes) break;
      at = std::max(at, plan.offsets[other] + Aligned(lifetimes[other].bytes));
    }
    plan.offsets[id] = at;
    plan.bytes = std::max(plan.bytes, at + bytes);
    const auto place = std::upper_bound(
        placed.begin(), placed.end(), at,
        [&](int64_t offset, size_t p) { return offset < plan.offsets[p]; });
    placed.insert(place, id);
  }
  return plan;
}

}  // namespace millrace::models::graph
