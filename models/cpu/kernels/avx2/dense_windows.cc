// Depthwise convolutions, pools and means, eight channels at a time.

#include "models/cpu/kernels/avx2/dense_vec8.h"
#include "models/cpu/kernels/dense/depthwise.h"
#include "models/cpu/kernels/dense/parts.h"
#include "models/cpu/kernels/dense/windows.h"

namespace millrace::models {

template <>
void DenseParts<Avx2Isa>::Depthwise(const DepthwiseArgs& args) {
  models::Depthwise<Vec8>::Run(args);
}
template <>
void DenseParts<Avx2Isa>::Pool(const PoolArgs& args) {
  Windows<Vec8>::Pool(args);
}
template <>
void DenseParts<Avx2Isa>::ColumnMeans(const float* x, int64_t rows, int64_t n,
                                      int64_t ld_x, float* y) {
  Windows<Vec8>::ColumnMeans(x, rows, n, ld_x, y);
}

}  // namespace millrace::models
