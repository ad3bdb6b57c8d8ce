#include "models/graph/cuda/byte_sums.h"

#include <utility>

#include "models/graph/passes/bytes.h"

namespace millrace::models::graph {

std::shared_ptr<const std::vector<int32_t>> ByteWeightSums::Get(
    const Integers& integers, int outputs_axis) {
  const Key key = {integers.values.get(), integers.axis, outputs_axis,
                   integers.zeros};
  MutexLock lock(mu_);
  const auto found = sums_.find(key);
  if (found != sums_.end()) return found->second.sums;
  auto weight = SignedWeightOf(integers, outputs_axis);
  CHECK(weight.has_value(), "the pass has proven the weights");
  auto sums =
      std::make_shared<const std::vector<int32_t>>(std::move(weight->sums));
  sums_.emplace(key, Sums{integers.values, sums});
  return sums;
}

}  // namespace millrace::models::graph
