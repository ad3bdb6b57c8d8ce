// Attention of one head over the products of this table, eight values at a
// time.

#include "models/cpu/kernels/avx2/dense_vec8.h"
#include "models/cpu/kernels/dense/attention.h"
#include "models/cpu/kernels/dense/parts.h"

namespace millrace::models {
namespace {

using Heads = DenseAttention<Vec8, AttentionProducts<Avx2Isa, 16, 1>>;

}  // namespace

template <>
int64_t DenseParts<Avx2Isa>::AttentionScratchFloats(int64_t d, int64_t dv) {
  return Heads::ScratchFloats(d, dv);
}
template <>
void DenseParts<Avx2Isa>::Attention(const AttentionArgs& args) {
  Heads::Run(args);
}

}  // namespace millrace::models
