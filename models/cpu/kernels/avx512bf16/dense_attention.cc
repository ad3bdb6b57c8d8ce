// Attention of one head over products of bf16; all else as with AVX-512.

#include "models/cpu/kernels/avx512/dense_vec16.h"
#include "models/cpu/kernels/dense/attention.h"
#include "models/cpu/kernels/dense/parts.h"

namespace millrace::models {
namespace {

using Heads = DenseAttention<Vec16, AttentionProducts<Avx512Bf16Isa, 32, 2>>;

}  // namespace

template <>
int64_t DenseParts<Avx512Bf16Isa>::AttentionScratchFloats(int64_t d,
                                                          int64_t dv) {
  return Heads::ScratchFloats(d, dv);
}
template <>
void DenseParts<Avx512Bf16Isa>::Attention(const AttentionArgs& args) {
  Heads::Run(args);
}

}  // namespace millrace::models
