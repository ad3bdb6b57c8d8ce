// Depthwise convolutions, pools and means, sixteen channels at a time.

#include "models/cpu/kernels/avx512/dense_vec16.h"
#include "models/cpu/kernels/dense/depthwise.h"
#include "models/cpu/kernels/dense/parts.h"
#include "models/cpu/kernels/dense/windows.h"

namespace millrace::models {

template <>
void DenseParts<Avx512Isa>::Depthwise(const DepthwiseArgs& args) {
  models::Depthwise<Vec16>::Run(args);
}
template <>
void DenseParts<Avx512Isa>::Pool(const PoolArgs& args) {
  Windows<Vec16>::Pool(args);
}
template <>
void DenseParts<Avx512Isa>::ColumnMeans(const float* x, int64_t rows, int64_t n,
                                        int64_t ld_x, float* y) {
  Windows<Vec16>::ColumnMeans(x, rows, n, ld_x, y);
}

}  // namespace millrace::models
