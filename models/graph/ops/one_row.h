// Weights of normalisations: one row that all rows have in common.
#pragma once

#include "models/tensor/shape.h"

namespace millrace::models::graph {

// Whether the operand is one row of x from `axis` on, the same for all rows.
inline bool IsOneRow(const Shape& operand, const Shape& x, int axis) {
  const int ahead = operand.rank() - (x.rank() - axis);
  if (ahead < 0) return false;
  for (int i = 0; i < operand.rank(); ++i) {
    if (operand[i] != (i < ahead ? 1 : x[axis + i - ahead])) return false;
  }
  return true;
}

}  // namespace millrace::models::graph
