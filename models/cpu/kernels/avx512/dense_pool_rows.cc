// Embedding bags, sixteen values at a time.

#include "models/cpu/kernels/avx512/dense_vec16.h"
#include "models/cpu/kernels/dense/pool_rows.h"

namespace millrace::models {
namespace {

struct RowLanes16 {
  using V = Vec16;

  static float Fma(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
  }

  template <TableRows kType>
  static __m512 Load(const std::byte* at) {
    if constexpr (kType == TableRows::kInt8) {
      return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(at))));
    } else if constexpr (kType == TableRows::kF32) {
      return _mm512_loadu_ps(at);
    } else {
      const __m256i bits =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
      if constexpr (kType == TableRows::kF16) return _mm512_cvtph_ps(bits);
      return _mm512_castsi512_ps(
          _mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
    }
  }
};

}  // namespace

void PoolRowsAvx512(const PoolRowsArgs& args) {
  RowPooling<RowLanes16>::Run(args);
}

}  // namespace millrace::models
