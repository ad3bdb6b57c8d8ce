// Whether two answers of graphs are alike.
#pragma once

#include <span>

#include "handlers/messages.h"

namespace millrace::handlers {

struct OutputDifference {
  bool alike = true;
  double largest = 0;  // |a - b| of numbers that stand at the same place
};

// Alike: the same names in any order, types and shapes; strings, bools and
// integers the same; floats a and b with |a - b| <= tolerance * (1 + |a|), or
// both the same infinity, or both NaN. A NaN beside a number counts as
// different, with no size.
OutputDifference CompareOutputs(std::span<const NamedTensor> real,
                                std::span<const NamedTensor> shadow,
                                double tolerance);

}  // namespace millrace::handlers
