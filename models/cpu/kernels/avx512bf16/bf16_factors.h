// Dot products of packed bf16 pairs, as kernels/dense/gemm.h wants them.
// Anonymous namespace.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/avx512/dense_vec16.h"

namespace millrace::models {
namespace {

// Floats that are loaded from bf16 and stored to it.
struct KeptVec16 : Vec16 {
  using Vec16::Load;
  using Vec16::LoadFirst;
  using Vec16::StoreFirst;

  static F Load(const uint16_t* p) {
    return OfKept(_mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(p)));
  }
  static F LoadFirst(const uint16_t* p, int64_t n) {
    return OfKept(_mm256_maskz_loadu_epi16(First(n), p));
  }
  // What was a bf16 loses nothing.
  static void StoreFirst(uint16_t* p, int64_t n, F x) {
    const __m512i upper = _mm512_srli_epi32(Bits(x), 16);
    _mm256_mask_storeu_epi16(p, First(n), _mm512_cvtepi32_epi16(upper));
  }

 private:
  static F OfKept(__m256i kept) {
    return OfBits(_mm512_slli_epi32(_mm512_cvtepu16_epi32(kept), 16));
  }
};

struct Bf16Factors {
  using V = KeptVec16;
  using E = uint16_t;
  static constexpr bool kRounds = true;

  static __m512 MulAdd(__m512 x, __m512 w, __m512 acc) {
#if defined(__clang__)
    // Clang 16 crashes when it broadcasts vectors of bf16.
    asm("vdpbf16ps %[w], %[x], %[acc]"
        : [acc] "+v"(acc)
        : [x] "v"(x), [w] "v"(w));
    return acc;
#else
    return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(x),
                            reinterpret_cast<__m512bh>(w));
#endif
  }

  // Rounds. What comes soon is asked for: it may be in memory.
  static void Copy(const float* from, int64_t n, uint16_t* to) {
    constexpr int64_t kAhead = 256;
    for (; n >= 32; n -= 32, from += 32, to += 32) {
      __builtin_prefetch(from + kAhead, 0, 2);
      __builtin_prefetch(from + kAhead + 16, 0, 2);
      _mm512_storeu_si512(
          to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(
                  _mm512_loadu_ps(from + 16), _mm512_loadu_ps(from))));
    }
    for (; n > 0; n -= 16, from += 16, to += 16) {
      const __m256bh rounded = _mm512_cvtneps_pbh(V::LoadFirst(from, n));
      _mm256_mask_storeu_epi16(to, V::First(n),
                               reinterpret_cast<__m256i>(rounded));
    }
  }
  // Of what is rounded already.
  static void Copy(const uint16_t* from, int64_t n, uint16_t* to) {
    for (; n >= 32; n -= 32, from += 32, to += 32) {
      _mm512_storeu_si512(to, _mm512_loadu_si512(from));
    }
    if (n == 0) return;
    const auto first = static_cast<__mmask32>((1u << n) - 1);
    _mm512_mask_storeu_epi16(to, first, _mm512_maskz_loadu_epi16(first, from));
  }
  static void Round(__m512 x, uint16_t* to) {
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to),
                        reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
  }
};

}  // namespace
}  // namespace millrace::models
