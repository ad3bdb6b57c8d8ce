// How work is cut for a team. A matrix product: by outputs where there are few
// rows, so that each weight is read by one member, by rows otherwise. Items of
// equal size: all of them are one range, which is walked item by item.
#pragma once

#include <algorithm>
#include <cstdint>

#include "models/cpu/graph_kernels.h"
#include "models/graph/op.h"

namespace millrace::models::graph {

struct Part {
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t panel_begin = 0;
  int64_t panel_end = 0;
};

// The costs of f32 products.
inline constexpr ProductCosts kPlainCosts = {
    .row_unit = 12, .rows_per_weight = 10, .read = 0, .gather = 2};

// `gathers`: each member copies or rounds the rows that it multiplies.
Part SplitProduct(int64_t num_rows, int64_t num_panels, const Team& team,
                  bool gathers, const ProductCosts& costs = kPlainCosts);

// By rows or by panels, whichever gives the members more even parts.
Part SplitEvenly(int64_t num_rows, int64_t num_panels, const Team& team);

// body(item, first, last) for the items that [begin, end) touches, `each` units
// an item: images of a batch by their pixels, rows or groups, planes by their
// columns. [first, last) are the units of that item.
template <typename Body>
void ForEachItem(int64_t begin, int64_t end, int64_t each, Body body) {
  while (begin < end) {
    const int64_t item = begin / each;
    const int64_t stop = std::min(end, (item + 1) * each);
    body(item, begin - item * each, stop - item * each);
    begin = stop;
  }
}

}  // namespace millrace::models::graph
