// Sums of quantised weights, which plans need to know of each output: found
// once for a graph, since they read the whole weight. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "config/base/mutex.h"
#include "models/graph/ir.h"
#include "models/tensor/tensor.h"

namespace millrace::models::graph {

class ByteWeightSums {
 public:
  // Of the values without zero points, for each output. The weight is one that
  // SignedWeightOf (passes/bytes.h) has.
  std::shared_ptr<const std::vector<int32_t>> Get(const Integers& integers,
                                                  int outputs_axis)
      EXCLUDES(mu_);

 private:
  struct Sums {
    std::shared_ptr<const Tensor> values;  // so that its address stays its own
    std::shared_ptr<const std::vector<int32_t>> sums;
  };
  using Key = std::tuple<const Tensor*, int, int, std::vector<int32_t>>;

  mutable Mutex mu_;  // held while a weight is read
  std::map<Key, Sums> sums_ GUARDED_BY(mu_);
};

}  // namespace millrace::models::graph
