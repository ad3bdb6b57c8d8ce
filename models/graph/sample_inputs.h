// Made-up inputs that fit a graph's ports: to warm it up, to time it, to
// compare two ways of running it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/graph/ir.h"

namespace millrace::models::graph {

struct SampleOptions {
  // Sizes of dimensions that vary, by the name of their symbol. Those left out
  // are 1, or the least that the symbol allows.
  std::map<std::string, int64_t> sizes;
  uint64_t seed = 1;
};

// Floats are spread evenly over [-1, 1); integers are 1, which most indices,
// masks and lengths may be; booleans are true. INVALID_ARGUMENT names a symbol
// that the graph has not, a size outside of its range or an input of more than
// 2^28 elements; UNIMPLEMENTED one of unknown rank or that is a sequence.
StatusOr<std::vector<Tensor>> SampleInputs(const std::vector<Port>& ports,
                                           const std::vector<Symbol>& symbols,
                                           const SampleOptions& options);

}  // namespace millrace::models::graph
