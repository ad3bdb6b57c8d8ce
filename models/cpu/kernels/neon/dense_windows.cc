// Depthwise convolutions, pools and means, eight channels at a time.

#include "models/cpu/kernels/dense/depthwise.h"
#include "models/cpu/kernels/dense/parts.h"
#include "models/cpu/kernels/dense/windows.h"
#include "models/cpu/kernels/neon/vec8.h"

namespace millrace::models {

template <>
void DenseParts<NeonIsa>::Depthwise(const DepthwiseArgs& args) {
  models::Depthwise<Neon8>::Run(args);
}
template <>
void DenseParts<NeonIsa>::Pool(const PoolArgs& args) {
  Windows<Neon8>::Pool(args);
}
template <>
void DenseParts<NeonIsa>::ColumnMeans(const float* x, int64_t rows, int64_t n,
                                      int64_t ld_x, float* y) {
  Windows<Neon8>::ColumnMeans(x, rows, n, ld_x, y);
}

}  // namespace millrace::models
