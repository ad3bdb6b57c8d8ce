// Transposes 8 x 8 floats in registers. Anonymous namespace.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace millrace::models {
namespace {

struct Square8 {
  static void Run(const float* x, int64_t ld_x, float* y, int64_t ld_y) {
    // Pairs of rows, then fours, then halves of 128 bits.
    __m256 row[8], pair[8], four[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) row[i] = _mm256_loadu_ps(x + i * ld_x);
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
      pair[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
      pair[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
      four[i] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0x44);
      four[i + 1] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0xee);
      four[i + 2] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0x44);
      four[i + 3] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      _mm256_storeu_ps(y + i * ld_y,
                       _mm256_permute2f128_ps(four[i], four[i + 4], 0x20));
      _mm256_storeu_ps(y + (i + 4) * ld_y,
                       _mm256_permute2f128_ps(four[i], four[i + 4], 0x31));
    }
  }
};

}  // namespace
}  // namespace millrace::models
