#include "models/graph/plan/split.h"

#include <algorithm>
#include <tuple>

namespace millrace::models::graph {
namespace {

constexpr int64_t kPanel = 10;  // tenths

int64_t CeilOf(int64_t n, int64_t d) { return (n + d - 1) / d; }

}  // namespace

Part SplitProduct(int64_t num_rows, int64_t num_panels, const Team& team,
                  bool gathers, const ProductCosts& costs) {
  Part part{0, num_rows, 0, num_panels};
  // The longest member's work either way.
  const int64_t unit = costs.row_unit;
  const int64_t units = CeilOf(num_rows, unit);
  const int64_t rows = std::min(CeilOf(units, team.count) * unit, num_rows);
  const int64_t each = costs.read + (gathers ? costs.gather : 0);
  const int64_t by_rows =
      (rows + costs.rows_per_weight) * num_panels * kPanel + rows * each;
  const int64_t by_panels =
      num_rows * (CeilOf(num_panels, team.count) * kPanel + each);
  if (by_rows < by_panels) {
    std::tie(part.row_begin, part.row_end) = team.Share(num_rows, unit);
  } else {
    std::tie(part.panel_begin, part.panel_end) = team.Share(num_panels);
  }
  return part;
}

Part SplitEvenly(int64_t num_rows, int64_t num_panels, const Team& team) {
  Part part{0, num_rows, 0, num_panels};
  // The longest member's share of the whole either way.
  const int64_t by_rows = CeilOf(num_rows, team.count) * num_panels;
  const int64_t by_panels = num_rows * CeilOf(num_panels, team.count);
  if (by_rows <= by_panels) {
    std::tie(part.row_begin, part.row_end) = team.Share(num_rows);
  } else {
    std::tie(part.panel_begin, part.panel_end) = team.Share(num_panels);
  }
  return part;
}

}  // namespace millrace::models::graph
