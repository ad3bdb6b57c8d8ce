#include "loadtest/load_search.h"

#include <algorithm>
#include <cmath>

namespace millrace::loadtest {
namespace {

// Less than this is no growth: the server is saturated.
constexpr double kGrowth = 1.02;

double Rounded(const LoadRange& range, double load) {
  return range.whole ? std::round(load) : load;
}

}  // namespace

LoadResult FindHighestLoad(
    const LoadRange& range,
    const std::function<std::optional<LoadPoint>(double load)>& measure) {
  LoadResult result;
  std::optional<double> low;   // the highest load that met the objectives
  std::optional<double> high;  // the lowest load that missed them
  int num_flat = 0;
  int num_missed = 0;
  double load =
      Rounded(range, std::clamp(range.start, range.least, range.most));
  while (true) {
    const std::optional<LoadPoint> point = measure(load);
    if (!point) {
      result.ended_early = true;
      return result;
    }
    ++result.num_measured;
    if (point->met) {
      const bool grew =
          !result.best || point->score > result.best->score * kGrowth;
      num_flat = grew ? 0 : num_flat + 1;
      if (!result.best || point->score > result.best->score) {
        result.best = point;
      }
      low = load;
      const bool hopeless = range.beat && result.best->score < *range.beat;
      if (num_flat >= (hopeless ? 1 : 2) || load >= range.most) return result;
    } else {
      high = load;
      ++num_missed;
      if (range.beat && !low && num_missed >= 2) return result;
      if (load <= range.least) return result;
    }
    double next = 0;
    if (!high) {
      next = std::min(*low * 2, range.most);
    } else if (!low) {
      next = std::max(*high / 2, range.least);
    } else {
      if (*high - *low <= range.precision * *low) return result;
      next = std::sqrt(*low * *high);
    }
    next = Rounded(range, next);
    if ((low && next <= *low) || (high && next >= *high)) return result;
    load = next;
  }
}

}  // namespace millrace::loadtest
