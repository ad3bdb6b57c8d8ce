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

// The same for plans that compute rows apart. Graphs whose masks are indexed by
// numbers of rows are left to plans for the whole batch: whether they gain from
// rows apart was not measured.
bool RowsMayGoApart(const Graph& whole, const Graph& more, int64_t batch,
                    const std::vector<bool>& has_rows);

}  // namespace millrace::models::graph
