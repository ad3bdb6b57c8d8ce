// Norms, softmax and reductions of rows, one value at a time.

#include "models/cpu/kernels/dense/parts.h"
#include "models/cpu/kernels/dense/rows.h"
#include "models/cpu/kernels/scalar/vec1.h"

namespace millrace::models {

template <>
void DenseParts<ScalarIsa>::LayerNorm(const NormArgs& args) {
  Rows<Vec1>::LayerNorm(args);
}
template <>
void DenseParts<ScalarIsa>::RmsNorm(const NormArgs& args) {
  Rows<Vec1>::RmsNorm(args);
}
template <>
void DenseParts<ScalarIsa>::GroupNorm(const GroupNormArgs& args) {
  Rows<Vec1>::GroupNorm(args);
}
template <>
void DenseParts<ScalarIsa>::Softmax(const SoftmaxArgs& args) {
  Rows<Vec1>::Softmax(args);
}
template <>
void DenseParts<ScalarIsa>::Reduce(ReduceKind kind, const float* x,
                                   int64_t rows, int64_t n, int64_t ld_x,
                                   float* y) {
  Rows<Vec1>::Reduce(kind, x, rows, n, ld_x, y);
}

template <>
void DenseParts<ScalarIsa>::Transpose(const float* x, int64_t rows,
                                      int64_t columns, int64_t ld_x, float* y,
                                      int64_t ld_y) {
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) y[c * ld_y + r] = x[r * ld_x + c];
  }
}

}  // namespace millrace::models
