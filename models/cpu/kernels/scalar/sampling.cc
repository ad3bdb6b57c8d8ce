// The two passes over a row of logits that sampling needs.

#include "models/cpu/kernels/scalar/numbers.h"
#include "models/cpu/kernels/scalar/parts.h"

namespace millrace::models::scalar {

float Max(const float* x, int64_t n) {
  float greatest = -__builtin_inff();
  for (int64_t i = 0; i < n; ++i) greatest = x[i] > greatest ? x[i] : greatest;
  return greatest;
}

double SumExp(const float* x, int64_t n, float offset, float scale,
              float* out) {
  double lanes[8] = {};
  for (int64_t i = 0; i < n; ++i) {
    const float term = Exp((x[i] - offset) * scale);
    lanes[i % 8] += static_cast<double>(term);
    if (out != nullptr) out[i] = term;
  }
  return LaneSum(lanes);
}

}  // namespace millrace::models::scalar
