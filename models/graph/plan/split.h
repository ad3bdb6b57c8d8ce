// How a matrix product is cut for a team: by outputs where there are few rows,
// so that each weight is read by one member, by rows otherwise.
#pragma once

#include <cstdint>

#include "models/graph/op.h"

namespace millrace::models::graph {

struct Part {
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t panel_begin = 0;
  int64_t panel_end = 0;
};

Part SplitProduct(int64_t num_rows, int64_t num_panels, const Team& team);

// By rows or by panels, whichever gives the members more even parts.
Part SplitEvenly(int64_t num_rows, int64_t num_panels, const Team& team);

}  // namespace millrace::models::graph
