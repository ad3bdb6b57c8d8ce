// Attention of one head over the products of this table, sixteen values at a
// time.

#include "models/cpu/kernels/avx512/dense_vec16.h"
#include "models/cpu/kernels/dense/attention.h"
#include "models/cpu/kernels/dense/parts.h"

namespace millrace::models {
namespace {

using Heads = DenseAttention<Vec16, AttentionProducts<Avx512Isa, 32, 1>>;

}  // namespace

template <>
int64_t DenseParts<Avx512Isa>::AttentionScratchFloats(int64_t d, int64_t dv) {
  return Heads::ScratchFloats(d, dv);
}
template <>
void DenseParts<Avx512Isa>::Attention(const AttentionArgs& args) {
  Heads::Run(args);
}

}  // namespace millrace::models
