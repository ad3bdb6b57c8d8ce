// Depthwise convolutions, pools and means, one value at a time.

#include "models/cpu/kernels/dense/depthwise.h"
#include "models/cpu/kernels/dense/parts.h"
#include "models/cpu/kernels/dense/windows.h"
#include "models/cpu/kernels/scalar/vec1.h"

namespace millrace::models {

template <>
void DenseParts<ScalarIsa>::Depthwise(const DepthwiseArgs& args) {
  models::Depthwise<Vec1>::Run(args);
}
template <>
void DenseParts<ScalarIsa>::Pool(const PoolArgs& args) {
  Windows<Vec1>::Pool(args);
}
template <>
void DenseParts<ScalarIsa>::ColumnMeans(const float* x, int64_t rows, int64_t n,
                                        int64_t ld_x, float* y) {
  Windows<Vec1>::ColumnMeans(x, rows, n, ld_x, y);
}

}  // namespace millrace::models
