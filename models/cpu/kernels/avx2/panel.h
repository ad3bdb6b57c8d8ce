// Integer tiles of AVX2 for many tokens. A panel holds the activations of a
// tile of tokens for some blocks, each group of four spread over a whole
// vector, so that vpmaddubsw takes it as a memory operand: no broadcast, no
// shuffle. 8 tokens x 9 parts are 18 KiB of L1.
#pragma once

#include "models/cpu/kernels/avx2/dots.h"

namespace millrace::models {
namespace {

struct alignas(32) Spread {
  int8_t q[8][32];
};
constexpr int kPanelTokens = 8;
template <int kTokens>
constexpr int64_t kPanelParts = 72 / kTokens;

template <int kTokens>
inline void FillPanel(const TileActs& x, int64_t parts, Spread* panel) {
  for (int64_t b = 0; b < parts; ++b) {
    for (int t = 0; t < kTokens; ++t, ++panel) {
      for (int j = 0; j < 8; ++j) {
        _mm256_store_si256(reinterpret_cast<__m256i*>(panel->q[j]),
                           Broadcast4(x.q + t * x.ld_q + b * 32 + 4 * j));
      }
    }
  }
}

// The 16-bit sums of one part and token, 4-bit codes. Assembly because the
// compiler re-associates the adds into one chain and spills the weights (80
// against 97 GMAC/s on Zen 3).
inline __m256i SpreadNibbles(const Spread* p, const __m256i w[8]) {
  __m256i t0, t1, t2, t3;
  asm("vpmaddubsw (%[p]), %[w0], %[t0]\n\t"
      "vpmaddubsw 32(%[p]), %[w1], %[t1]\n\t"
      "vpmaddubsw 64(%[p]), %[w2], %[t2]\n\t"
      "vpmaddubsw 96(%[p]), %[w3], %[t3]\n\t"
      "vpaddw %[t0], %[t1], %[t1]\n\t"
      "vpaddw %[t2], %[t3], %[t3]\n\t"
      "vpmaddubsw 128(%[p]), %[w4], %[t0]\n\t"
      "vpaddw %[t1], %[t3], %[t3]\n\t"
      "vpmaddubsw 160(%[p]), %[w5], %[t1]\n\t"
      "vpmaddubsw 192(%[p]), %[w6], %[t2]\n\t"
      "vpaddw %[t0], %[t1], %[t1]\n\t"
      "vpmaddubsw 224(%[p]), %[w7], %[t0]\n\t"
      "vpaddw %[t1], %[t3], %[t3]\n\t"
      "vpaddw %[t2], %[t0], %[t0]\n\t"
      "vpaddw %[t0], %[t3], %[t3]"
      : [t0] "=&x"(t0), [t1] "=&x"(t1), [t2] "=&x"(t2), [t3] "=&x"(t3)
      : [p] "r"(p), [w0] "x"(w[0]), [w1] "x"(w[1]), [w2] "x"(w[2]),
        [w3] "x"(w[3]), [w4] "x"(w[4]), [w5] "x"(w[5]), [w6] "x"(w[6]),
        [w7] "x"(w[7]), "m"(*p));
  return t3;
}

template <WeightFormat kFormat>
[[gnu::always_inline]] inline __m256i SpreadDot(const Spread* p,
                                                const __m256i w[8],
                                                const Factors& factors) {
  if constexpr (kSteps<kFormat> == 8) {
    return _mm256_madd_epi16(SpreadNibbles(p, w), factors.of_half[0]);
  }
  return SumSteps<kFormat>(factors, [&](int j) {
    return _mm256_maddubs_epi16(
        w[j], _mm256_load_si256(reinterpret_cast<const __m256i*>(p->q[j])));
  });
}

// kTokens tokens x 8 rows over some blocks, continuing acc; not for signed
// formats. The next group's blocks, `group_bytes` on, are asked for meanwhile.
template <WeightFormat kFormat, int kTokens>
inline void PanelTile(const uint8_t* w, int64_t blocks, int64_t group_bytes,
                      const Spread* panel, const TileActs& x,
                      __m256 acc[kTokens]) {
  constexpr int64_t kPart = Pack8::QuantBytes(kFormat);
  constexpr int64_t kPartsAt = Pack8::PartsAt(kFormat);
  constexpr int64_t kBlock = Pack8::BlockBytes(kFormat);
  constexpr int64_t kStride = kBlock / kParts<kFormat>;
  for (int64_t b = 0; b < blocks; ++b, w += kBlock) {
    PartScales scales[kParts<kFormat>];
    ReadHeader<kFormat>(w, scales);
    const uint8_t* part = w + kPartsAt;
#pragma GCC unroll 1
    for (int i = 0; i < kParts<kFormat>; ++i, part += kPart) {
#pragma GCC unroll 4
      for (int64_t line = 0; line < kStride; line += 64) {
        Prefetch(w + i * kStride + group_bytes + line);
      }
      __m256i codes[8];
      UnpackUnsigned<kFormat>(part, codes);
      const Factors factors = FactorsOf<kFormat>(scales[i]);
      // Not unrolled: the accumulators stay in L1, the registers hold weights.
#pragma GCC unroll 1
      for (int t = 0; t < kTokens; ++t, ++panel) {
        const int64_t at = t * x.ld_block + b * kParts<kFormat> + i;
        __m256i isum = SpreadDot<kFormat>(panel, codes, factors);
        if constexpr (kLessShift<kFormat> >= 0) {
          isum = _mm256_sub_epi32(isum, TooMuch<kFormat>(scales[i], x, at));
        }
        acc[t] = AddSum<kFormat>(acc[t], isum, scales[i], x, at);
      }
    }
  }
}

}  // namespace
}  // namespace millrace::models
