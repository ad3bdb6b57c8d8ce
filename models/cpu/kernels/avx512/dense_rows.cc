// Norms, softmax and reductions of rows, sixteen values at a time.

#include "models/cpu/kernels/avx2/square8.h"
#include "models/cpu/kernels/avx512/dense_vec16.h"
#include "models/cpu/kernels/dense/parts.h"
#include "models/cpu/kernels/dense/rows.h"
#include "models/cpu/kernels/dense/transpose.h"

namespace millrace::models {

template <>
void DenseParts<Avx512Isa>::LayerNorm(const NormArgs& args) {
  Rows<Vec16>::LayerNorm(args);
}
template <>
void DenseParts<Avx512Isa>::RmsNorm(const NormArgs& args) {
  Rows<Vec16>::RmsNorm(args);
}
template <>
void DenseParts<Avx512Isa>::GroupNorm(const GroupNormArgs& args) {
  Rows<Vec16>::GroupNorm(args);
}
template <>
void DenseParts<Avx512Isa>::Softmax(const SoftmaxArgs& args) {
  Rows<Vec16>::Softmax(args);
}
template <>
void DenseParts<Avx512Isa>::Reduce(ReduceKind kind, const float* x,
                                   int64_t rows, int64_t n, int64_t ld_x,
                                   float* y) {
  Rows<Vec16>::Reduce(kind, x, rows, n, ld_x, y);
}

template <>
void DenseParts<Avx512Isa>::Transpose(const float* x, int64_t rows,
                                      int64_t columns, int64_t ld_x, float* y,
                                      int64_t ld_y) {
  Transposes<Square8>::Run(x, rows, columns, ld_x, y, ld_y);
}

}  // namespace millrace::models
