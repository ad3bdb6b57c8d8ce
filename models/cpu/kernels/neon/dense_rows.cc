// Norms, softmax and reductions of rows, eight values at a time.

#include "models/cpu/kernels/dense/parts.h"
#include "models/cpu/kernels/dense/rows.h"
#include "models/cpu/kernels/dense/transpose.h"
#include "models/cpu/kernels/neon/square8.h"
#include "models/cpu/kernels/neon/vec8.h"

namespace millrace::models {

template <>
void DenseParts<NeonIsa>::LayerNorm(const NormArgs& args) {
  Rows<Neon8>::LayerNorm(args);
}
template <>
void DenseParts<NeonIsa>::RmsNorm(const NormArgs& args) {
  Rows<Neon8>::RmsNorm(args);
}
template <>
void DenseParts<NeonIsa>::GroupNorm(const GroupNormArgs& args) {
  Rows<Neon8>::GroupNorm(args);
}
template <>
void DenseParts<NeonIsa>::Softmax(const SoftmaxArgs& args) {
  Rows<Neon8>::Softmax(args);
}
template <>
void DenseParts<NeonIsa>::Reduce(ReduceKind kind, const float* x, int64_t rows,
                                 int64_t n, int64_t ld_x, float* y) {
  Rows<Neon8>::Reduce(kind, x, rows, n, ld_x, y);
}

template <>
void DenseParts<NeonIsa>::Transpose(const float* x, int64_t rows,
                                    int64_t columns, int64_t ld_x, float* y,
                                    int64_t ld_y) {
  Transposes<Square8>::Run(x, rows, columns, ld_x, y, ld_y);
}

}  // namespace millrace::models
