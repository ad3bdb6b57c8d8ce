#include "models/graph/plan/split.h"

#include <algorithm>
#include <tuple>

namespace millrace::models::graph {
namespace {

// Whole register tiles of any table.
constexpr int64_t kRowUnit = 12;
// What reading a weight once more costs, in rows that are multiplied by it.
constexpr int64_t kRowsPerRead = 10;
// What gathering a row costs, in tenths of a panel that it meets.
constexpr int64_t kPanel = 10;
constexpr int64_t kGather = 2;

int64_t CeilOf(int64_t n, int64_t d) { return (n + d - 1) / d; }

}  // namespace

Part SplitProduct(int64_t num_rows, int64_t num_panels, const Team& team,
                  bool gathers) {
  Part part{0, num_rows, 0, num_panels};
  // The longest member's work either way.
  const int64_t units = CeilOf(num_rows, kRowUnit);
  const int64_t rows = std::min(CeilOf(units, team.count) * kRowUnit, num_rows);
  const int64_t gather = gathers ? kGather : 0;
  const int64_t by_rows =
      (rows + kRowsPerRead) * num_panels * kPanel + rows * gather;
  const int64_t by_panels =
      num_rows * (CeilOf(num_panels, team.count) * kPanel + gather);
  if (by_rows < by_panels) {
    std::tie(part.row_begin, part.row_end) = team.Share(num_rows, kRowUnit);
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
