// What convolutions and pools share: operands whose last axes are space, with a
// batch axis or without.
#pragma once

#include <cstdint>
#include <vector>

#include "models/graph/pt2/lowering.h"

namespace millrace::models::graph::pt2 {

using Ints64 = std::vector<int64_t>;

// The same on both sides of each axis.
inline Ints64 BothSides(Ints64 pads) {
  const Ints64 ends = pads;
  pads.insert(pads.end(), ends.begin(), ends.end());
  return pads;
}

// x with a batch axis, and whether it had none.
struct Batched {
  ValueId id;
  bool added;
};
inline Batched WithBatch(Lowering& n, const Operand& x, size_t space) {
  const bool added = x.rank() == static_cast<int>(space) + 1;
  return {added ? n.emit().Unsqueeze(x.id, {0}) : x.id, added};
}
inline ValueId WithoutBatch(Lowering& n, const Batched& x, ValueId y) {
  return x.added ? n.emit().Squeeze(y, {0}) : y;
}

}  // namespace millrace::models::graph::pt2
