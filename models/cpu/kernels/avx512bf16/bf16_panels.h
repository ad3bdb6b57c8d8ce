// Weights of products of bf16 in panels of 32 outputs: words of two steps of k,
// [panel][word][output]. Anonymous namespace.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "models/cpu/graph_kernels.h"
#include "models/cpu/kernels/avx2/square8.h"
#include "models/cpu/kernels/avx512bf16/bf16_factors.h"
#include "models/cpu/kernels/dense/transpose.h"

namespace millrace::models {
namespace {

class Bf16Panels {
 public:
  static constexpr int64_t kPanel = 32;

  // Of w[n][k], each panel of so many words: at least (k + 1) / 2. What n and k
  // leave of a panel is 0.
  template <class T>
  static void Pack(const T* w, int64_t n, int64_t k, int64_t words,
                   MatrixStrides strides, int64_t panel_begin,
                   int64_t panel_end, float* packed) {
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      const int64_t n0 = panel * kPanel;
      const int64_t live = n - n0 < kPanel ? n - n0 : kPanel;
      float* to = packed + n0 * words;
      if (strides.n == 1) {
        PackPairs(w + n0, live, k, strides.k, to);
      } else {
        PackSome(w + n0 * strides.n, live, k, strides, to);
      }
      const int64_t done = (k + 1) / 2;
      __builtin_memset(to + done * kPanel, 0,
                       sizeof(float) * kPanel * (words - done));
    }
  }

 private:
  // Rounded, in the lower halves.
  static __m512i FirstRounded(const float* p, int64_t n) {
    return _mm512_cvtepu16_epi32(
        reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(Vec16::LoadFirst(p, n))));
  }
  static __m512i FirstRounded(const Bf16* p, int64_t n) {
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(Vec16::First(n), p));
  }

  // Two steps beside each other: where outputs are neighbours.
  template <class T>
  static void PackPairs(const T* w, int64_t live, int64_t k, int64_t ld,
                        float* packed) {
    for (int64_t i = 0; i < k; i += 2, packed += kPanel) {
      for (int64_t j = 0; j < kPanel; j += 16) {
        const T* from = w + i * ld + j;
        const __m512i low = FirstRounded(from, live - j);
        const __m512i high = i + 1 < k ? FirstRounded(from + ld, live - j)
                                       : _mm512_setzero_si512();
        _mm512_storeu_si512(packed + j,
                            _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
      }
    }
  }

  // Elsewhere some steps at a time: rounded row by row, then turned.
  template <class T>
  static void PackSome(const T* w, int64_t live, int64_t k,
                       MatrixStrides strides, float* packed) {
    constexpr int64_t kSteps = 128;
    T gathered[kSteps];
    alignas(64) float rounded[kPanel * kSteps / 2];
    for (int64_t k0 = 0; k0 < k; k0 += kSteps) {
      const int64_t steps = k - k0 < kSteps ? k - k0 : kSteps;
      __builtin_memset(rounded, 0, sizeof rounded);
      for (int64_t j = 0; j < live; ++j) {
        const T* from = w + j * strides.n + k0 * strides.k;
        if (strides.k != 1) {
          for (int64_t i = 0; i < steps; ++i) gathered[i] = from[i * strides.k];
          from = gathered;
        }
        Bf16Factors::Copy(
            from, steps,
            reinterpret_cast<uint16_t*>(rounded + j * (kSteps / 2)));
      }
      Transposes<Square8>::Run(rounded, kPanel, (steps + 1) / 2, kSteps / 2,
                               packed + k0 / 2 * kPanel, kPanel);
    }
  }
};

}  // namespace
}  // namespace millrace::models
