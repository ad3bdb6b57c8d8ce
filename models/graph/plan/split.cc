#include "models/graph/plan/split.h"

#include <tuple>

namespace millrace::models::graph {
namespace {

// Whole register tiles of any table.
constexpr int64_t kRowUnit = 24;
// From so many rows a member on, rows are worth more than weights.
constexpr int64_t kManyRows = 8 * kRowUnit;

}  // namespace

Part SplitProduct(int64_t num_rows, int64_t num_panels, const Team& team) {
  Part part{0, num_rows, 0, num_panels};
  const bool few_panels = num_panels < 2 * team.count;
  if (num_rows >= kManyRows * team.count ||
      (few_panels && num_rows >= kRowUnit * team.count)) {
    std::tie(part.row_begin, part.row_end) = team.Share(num_rows, kRowUnit);
  } else {
    std::tie(part.panel_begin, part.panel_end) = team.Share(num_panels);
  }
  return part;
}

}  // namespace millrace::models::graph
