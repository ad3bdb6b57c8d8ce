// Embedding bags, eight values at a time.

#include "models/cpu/kernels/avx2/dense_vec8.h"
#include "models/cpu/kernels/dense/pool_rows.h"

namespace millrace::models {
namespace {

struct RowLanes8 {
  using V = Vec8;

  static float Fma(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
  }

  template <TableRows kType>
  static __m256 Load(const std::byte* at) {
    if constexpr (kType == TableRows::kInt8) {
      return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(
          _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at))));
    } else if constexpr (kType == TableRows::kF32) {
      return _mm256_loadu_ps(reinterpret_cast<const float*>(at));
    } else {
      const __m128i bits =
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
      if constexpr (kType == TableRows::kF16) return _mm256_cvtph_ps(bits);
      return _mm256_castsi256_ps(
          _mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
    }
  }
};

}  // namespace

void PoolRowsAvx2(const PoolRowsArgs& args) {
  RowPooling<RowLanes8>::Run(args);
}

}  // namespace millrace::models
