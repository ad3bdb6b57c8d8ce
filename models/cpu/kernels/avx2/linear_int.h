// Integer linear kernels of AVX2, for linear.cc alone: GEMV tiles that
// broadcast activations, and panel tiles that find them already spread in L1.
//
// One block is 8 rows x 32 columns. Q4: u4 x s8 products are summed in 16 bits
// over all 8 steps: |sum of a lane| <= 8 * 2 * 15 * 127 = 30480, so nothing
// saturates or wraps, then one vpmaddwd. Q8_0 takes |w| as the unsigned and
// sign(x, w) as the signed operand; x never is -128, and 128 * 127 * 2 = 32512
// still fits.
#pragma once

#include "models/cpu/kernels/avx2/work.h"

namespace millrace::models {
namespace {

// Reads of four activations at once, wherever they stand.
using Int32Anywhere = int32_t __attribute__((may_alias, aligned(1)));

inline __m256i Broadcast4(const int8_t* x) {
  return _mm256_set1_epi32(*reinterpret_cast<const Int32Anywhere*>(x));
}
inline __m256i LoadQuants(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline __m256 LoadHalves(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline void Prefetch(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
}

// Low halves first (columns 0-15), then high halves (columns 16-31).
inline void UnpackNibbles(const uint8_t* p, __m256i w[8]) {
  const __m256i low = _mm256_set1_epi8(15);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m256i q = LoadQuants(p + 32 * j);
    w[j] = _mm256_and_si256(q, low);
    w[j + 4] = _mm256_and_si256(_mm256_srli_epi16(q, 4), low);
  }
}

// Where the activations of a tile's first token and first block stand.
struct TileActs {
  const int8_t* q;
  const float* d;
  const float* s;
  const int32_t* sum;
  int64_t ld_q;
  int64_t ld_block;
};

inline TileActs ActsAt(const ActRows& act, int64_t token, int64_t block) {
  const int64_t at = token * act.ld_block + block;
  return {act.q + token * act.ld_q + block * 32,
          act.d + at,
          act.s + at,
          act.sum + at,
          act.ld_q,
          act.ld_block};
}

// acc = fma(float(isum), dw * dx, acc), and Q4_1's minimum after it.
template <WeightFormat kFormat>
inline __m256 AddBlock(__m256 acc, __m256i isum, __m256 d, __m256 m,
                       const float* dx, const float* sx) {
  acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(isum),
                        _mm256_mul_ps(d, _mm256_broadcast_ss(dx)), acc);
  if constexpr (kFormat == WeightFormat::kQ4_1) {
    acc = _mm256_fmadd_ps(m, _mm256_broadcast_ss(sx), acc);
  }
  return acc;
}

// Σ w x of one block for eight rows, from unpacked nibbles.
template <WeightFormat kFormat>
inline __m256i NibbleDot(const __m256i w[8], const int8_t* x,
                         const int32_t* sum) {
  __m256i s0 = _mm256_maddubs_epi16(w[0], Broadcast4(x));
  __m256i s1 = _mm256_maddubs_epi16(w[1], Broadcast4(x + 4));
#pragma GCC unroll 4
  for (int j = 2; j < 8; j += 2) {
    s0 =
        _mm256_add_epi16(s0, _mm256_maddubs_epi16(w[j], Broadcast4(x + 4 * j)));
    s1 = _mm256_add_epi16(
        s1, _mm256_maddubs_epi16(w[j + 1], Broadcast4(x + 4 * j + 4)));
  }
  const __m256i dot =
      _mm256_madd_epi16(_mm256_add_epi16(s0, s1), _mm256_set1_epi16(1));
  if constexpr (kFormat == WeightFormat::kQ4_1) return dot;
  return _mm256_sub_epi32(dot, _mm256_slli_epi32(_mm256_set1_epi32(*sum), 3));
}

// kTokens tokens x 8 rows over all blocks; the weights are streamed.
template <WeightFormat kFormat, int kTokens>
inline void GemvTile(const uint8_t* w, int64_t blocks, TileActs x,
                     __m256 acc[kTokens]) {
  constexpr int64_t kBlock = Pack8::BlockBytes(kFormat);
  constexpr int64_t kScales = Pack8::QuantBytes(kFormat);
  constexpr int64_t kAhead = 2304;  // 1152 to 2304 were equal, 4608 worse
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) acc[t] = _mm256_setzero_ps();
  for (int64_t b = 0; b < blocks; ++b, w += kBlock) {
#pragma GCC unroll 8
    for (int64_t line = 0; line < kBlock; line += 64) {
      Prefetch(w + kAhead + line);
    }
    const __m256 d = LoadHalves(w + kScales);
    const __m256 m = kFormat == WeightFormat::kQ4_1
                         ? LoadHalves(w + kScales + Pack8::kMins)
                         : _mm256_setzero_ps();
    __m256i isum[kTokens];
    if constexpr (kFormat == WeightFormat::kQ8_0) {
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) isum[t] = _mm256_setzero_si256();
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) {
        const __m256i q = LoadQuants(w + 32 * j);
        const __m256i magnitude = _mm256_abs_epi8(q);
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) {
          const __m256i signed_x = _mm256_sign_epi8(
              Broadcast4(x.q + t * x.ld_q + b * 32 + 4 * j), q);
          isum[t] = _mm256_add_epi32(
              isum[t],
              _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, signed_x),
                                _mm256_set1_epi16(1)));
        }
      }
    } else {
      __m256i nibbles[8];
      UnpackNibbles(w, nibbles);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        isum[t] = NibbleDot<kFormat>(nibbles, x.q + t * x.ld_q + b * 32,
                                     x.sum + t * x.ld_block + b);
      }
    }
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      const int64_t at = t * x.ld_block + b;
      acc[t] = AddBlock<kFormat>(acc[t], isum[t], d, m, x.d + at, x.s + at);
    }
  }
}

// A panel holds the activations of a tile of tokens for some blocks, each group
// of four spread over a whole vector, so that vpmaddubsw takes it as a memory
// operand: no broadcast, no shuffle. 8 tokens x 9 blocks are 18 KiB of L1.
struct alignas(32) Spread {
  int8_t q[8][32];
};
constexpr int kPanelTokens = 8;
template <int kTokens>
constexpr int64_t kPanelBlocks = 72 / kTokens;

template <int kTokens>
inline void FillPanel(const TileActs& x, int64_t blocks, Spread* panel) {
  for (int64_t b = 0; b < blocks; ++b) {
    for (int t = 0; t < kTokens; ++t, ++panel) {
      for (int j = 0; j < 8; ++j) {
        _mm256_store_si256(reinterpret_cast<__m256i*>(panel->q[j]),
                           Broadcast4(x.q + t * x.ld_q + b * 32 + 4 * j));
      }
    }
  }
}

// The 16-bit sums of one block and token. Assembly because the compiler
// re-associates the adds into one chain and spills the weights (80 against 97
// GMAC/s on Zen 3).
inline __m256i SpreadDot(const Spread* p, const __m256i w[8]) {
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

// kTokens tokens x 8 rows over some blocks, continuing acc. Q4 only. The next
// group's blocks, `group_bytes` on, are asked for meanwhile.
template <WeightFormat kFormat, int kTokens>
inline void PanelTile(const uint8_t* w, int64_t blocks, int64_t group_bytes,
                      const Spread* panel, const TileActs& x,
                      __m256 acc[kTokens]) {
  constexpr int64_t kBlock = Pack8::BlockBytes(kFormat);
  constexpr int64_t kScales = Pack8::QuantBytes(kFormat);
  const __m256i ones = _mm256_set1_epi16(1);
  for (int64_t b = 0; b < blocks; ++b, w += kBlock) {
    Prefetch(w + group_bytes);
    Prefetch(w + group_bytes + 64);
    Prefetch(w + group_bytes + 128);
    __m256i nibbles[8];
    UnpackNibbles(w, nibbles);
    const __m256 d = LoadHalves(w + kScales);
    const __m256 m = kFormat == WeightFormat::kQ4_1
                         ? LoadHalves(w + kScales + Pack8::kMins)
                         : _mm256_setzero_ps();
    // Not unrolled: the accumulators stay in L1, the registers hold weights.
#pragma GCC unroll 1
    for (int t = 0; t < kTokens; ++t, ++panel) {
      const int64_t at = t * x.ld_block + b;
      __m256i dot = _mm256_madd_epi16(SpreadDot(panel, nibbles), ones);
      if constexpr (kFormat == WeightFormat::kQ4_0) {
        dot = _mm256_sub_epi32(
            dot, _mm256_slli_epi32(_mm256_set1_epi32(x.sum[at]), 3));
      }
      acc[t] = AddBlock<kFormat>(acc[t], dot, d, m, x.d + at, x.s + at);
    }
  }
}

}  // namespace
}  // namespace millrace::models
