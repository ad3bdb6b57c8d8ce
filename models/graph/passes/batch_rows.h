// Whether a batch is nothing but its rows: whether row i of each result depends
// on row i of the inputs alone. Such a batch may be computed a row at a time,
// which keeps what lies between layers in the caches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/graph/ir.h"

namespace millrace::models::graph {

// `whole` and `more` are the same graph optimised for `batch` rows and for one
// row more: a constant that depends on their number shows. has_rows: of each
// input, whether its first dimension is the batch; the others are the same for
// all rows. Empty when the rows are independent; else, and when in doubt, a
// sentence that says why they may not be.
std::string WhyRowsMeet(const Graph& whole, const Graph& more, int64_t batch,
                        const std::vector<bool>& has_rows);

inline bool RowsAreIndependent(const Graph& whole, const Graph& more,
                               int64_t batch,
                               const std::vector<bool>& has_rows) {
  return WhyRowsMeet(whole, more, batch, has_rows).empty();
}

}  // namespace millrace::models::graph
