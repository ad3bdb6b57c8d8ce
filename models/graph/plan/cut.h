// A graph cut in two, a head and a tail, at the one value that the tail reads
// of the head. The first layers of an image network move more between them than
// they read of weights, the last ones less:
//
//   rows of a batch apart            the batch at once
//   x ── Conv ── Conv ── …  ── v ──  Conv ── Conv ── … ── y
//
// so the head goes row by row, in the caches of a core, and the tail reads its
// weights once for all rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/graph/ir.h"

namespace millrace::models::graph {

struct Cut {
  size_t nodes = 0;  // of the head: the first ones; 0: no cut
  ValueId value = kNoValue;
};

// Where the head moves most beyond its weights; none where that is little, or
// where one of the parts would be better off with the whole graph. `one` is
// optimised for one row. has_bf16: as of NodeBytes.
Cut ChooseCut(const Graph& one, bool has_bf16);

// The same place in the graph optimised for `batch` rows; none where that
// differs by more than the number of rows.
Cut SameCut(const Graph& one, const Cut& cut, const Graph& whole,
            int64_t batch);

// The value is the head's only result, and the tail's only input.
Graph HeadOf(const Graph& graph, const Cut& cut);
Graph TailOf(const Graph& graph, const Cut& cut);

}  // namespace millrace::models::graph
