// Attention of one head over the products of this table, one value at a time.

#include "models/cpu/kernels/dense/attention.h"
#include "models/cpu/kernels/dense/parts.h"
#include "models/cpu/kernels/scalar/vec1.h"

namespace millrace::models {
namespace {

using Heads = DenseAttention<Vec1, AttentionProducts<ScalarIsa, 16, 1>>;

}  // namespace

template <>
int64_t DenseParts<ScalarIsa>::AttentionScratchFloats(int64_t d, int64_t dv) {
  return Heads::ScratchFloats(d, dv);
}
template <>
void DenseParts<ScalarIsa>::Attention(const AttentionArgs& args) {
  Heads::Run(args);
}

}  // namespace millrace::models
