// Attention of one head over the products of this table, one value at a time.

#include "models/cpu/kernels/dense/attention.h"
#include "models/cpu/kernels/dense/parts.h"
#include "models/cpu/kernels/scalar/vec1.h"

namespace millrace::models {

template <>
int64_t DenseParts<ScalarIsa>::AttentionScratchFloats(int64_t d, int64_t dv) {
  return DenseAttention<Vec1>::ScratchFloats(d, dv);
}
template <>
void DenseParts<ScalarIsa>::Attention(const AttentionArgs& args) {
  DenseAttention<Vec1>::Run(args, Gemm, 16);
}

}  // namespace millrace::models
