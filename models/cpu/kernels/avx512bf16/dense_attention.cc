// Attention of one head over products of bf16; all else as with AVX-512.

#include "models/cpu/kernels/avx512bf16/bf16_factors.h"
#include "models/cpu/kernels/dense/attention.h"
#include "models/cpu/kernels/dense/parts.h"

namespace millrace::models {
namespace {

struct RoundedProducts : AttentionProducts<Avx512Bf16Isa, 32, 2> {
  static void Round(const float* x, int64_t n, Bf16* y) {
    Bf16Factors::Copy(x, n, y);
  }
  static void Widen(const Bf16* x, int64_t n, float* y) {
    for (int64_t i = 0; i < n; i += 16) {
      Vec16::StoreFirst(y + i, n - i, KeptVec16::LoadFirst(x + i, n - i));
    }
  }
};
using Heads = DenseAttention<Vec16, RoundedProducts>;

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
