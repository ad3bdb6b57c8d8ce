// Windows over values in bf16, which are compared and multiplied as floats.

#include "models/cpu/kernels/avx512bf16/bf16_factors.h"
#include "models/cpu/kernels/dense/depthwise.h"
#include "models/cpu/kernels/dense/parts.h"
#include "models/cpu/kernels/dense/windows.h"

namespace millrace::models {
template <>
void DenseParts<Avx512Bf16Isa>::MaxPool(const PoolArgs& args) {
  Windows<KeptVec16>::PoolOf(args, args.x_bf16, args.y_bf16);
}
template <>
void DenseParts<Avx512Bf16Isa>::Depthwise(const DepthwiseArgs& args) {
  models::Depthwise<KeptVec16>::Of(args, args.x_bf16);
}

}  // namespace millrace::models
