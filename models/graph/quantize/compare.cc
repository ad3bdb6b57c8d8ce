#include "models/graph/quantize/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace millrace::models::graph {

StatusOr<TensorSets> RunAll(ExecutionContext& context,
                            const TensorSets& samples) {
  TensorSets results;
  for (const auto& sample : samples) {
    ASSIGN_OR_RETURN(results.emplace_back(), context.Run(sample));
  }
  return results;
}

double ErrorOf(const TensorSets& got, const TensorSets& want) {
  std::map<size_t, std::array<double, 2>> sums;
  for (size_t s = 0; s < want.size(); ++s) {
    for (size_t o = 0; o < want[s].size(); ++o) {
      if (want[s][o].dtype() != DType::kF32 ||
          got[s][o].shape() != want[s][o].shape()) {
        continue;
      }
      const float* g = got[s][o].data<float>();
      const float* w = want[s][o].data<float>();
      for (int64_t i = 0; i < want[s][o].num_elements(); ++i) {
        if (!std::isfinite(w[i])) continue;
        const double off = double{g[i]} - w[i];
        sums[o][0] += off * off;
        sums[o][1] += double{w[i]} * w[i];
      }
    }
  }
  double worst = 0;
  for (const auto& [output, sum] : sums) {
    const double error = std::sqrt(sum[0] / std::max(sum[1], 1e-30));
    worst = std::isnan(error) ? 1e9 : std::max(worst, error);
  }
  return worst;
}

}  // namespace millrace::models::graph
