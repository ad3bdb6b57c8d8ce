// Norms, softmax and reductions of rows, sixteen values at a time.

#include "models/cpu/kernels/avx512/dense_vec16.h"
#include "models/cpu/kernels/dense/parts.h"
#include "models/cpu/kernels/dense/rows.h"

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

}  // namespace millrace::models
