// Eight lanes of bytes and integers as kernels/dense_int8/gemm.h wants them,
// but for the product. Anonymous namespace.
#pragma once

#include "models/cpu/kernels/avx2/dense_vec8.h"

namespace millrace::models {
namespace {

struct Int8Vec8 {
  using V = Vec8;
  using I = __m256i;
  using F = __m256;
  static constexpr int64_t kRawBytes = 16;

  static I LoadInts(const int32_t* p, int64_t n) {
    if (n >= 8) return _mm256_loadu_si256(reinterpret_cast<const I*>(p));
    return _mm256_maskload_epi32(p, FirstLanes(n < 0 ? 0 : n));
  }
  static void StoreInts(int32_t* p, I v) {
    _mm256_storeu_si256(reinterpret_cast<I*>(p), v);
  }
  static I ToInts(F v) { return _mm256_cvtps_epi32(v); }
  static I Four(const uint8_t* p) {
    return _mm256_castps_si256(
        _mm256_broadcast_ss(reinterpret_cast<const float*>(p)));
  }
  static I Weights(const int8_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const I*>(p));
  }
  static F LoadBytes(const uint8_t* p, int64_t n) {
    const __m128i bytes =
        n >= 8 ? _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))
               : LoadRaw(p, n);
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
  }
  static void StoreBytes(uint8_t* p, int64_t n, F v, int32_t zero) {
    const I q = _mm256_add_epi32(ToInts(v), _mm256_set1_epi32(zero));
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(q),
                                          _mm256_extracti128_si256(q, 1));
    const __m128i bytes = _mm_packus_epi16(words, words);
    if (n >= 8) {
      _mm_storel_epi64(reinterpret_cast<__m128i*>(p), bytes);
    } else {
      StoreRaw(p, n, bytes);
    }
  }

  static void Lookup(const uint8_t* table, const uint8_t* x, int64_t n,
                     uint8_t* y) {
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
      StoreTaps(y + i, 32, LookupTaps(table, LoadTaps(x + i)));
    }
    for (; i < n; ++i) y[i] = table[x[i]];
  }

  using Half = __m128i;
  static Half PackHalf(I a, I b, int32_t zero) {
    const I words =
        _mm256_add_epi16(_mm256_packs_epi32(a, b),
                         _mm256_set1_epi16(static_cast<int16_t>(zero)));
    const I ordered = _mm256_permute4x64_epi64(words, 0xd8);
    return _mm_packus_epi16(_mm256_castsi256_si128(ordered),
                            _mm256_extracti128_si256(ordered, 1));
  }
  static void StoreHalf(uint8_t* p, int64_t n, Half v) { StoreRaw(p, n, v); }
  using Rows = __m256i;
  static Rows PackRows(const I (&q)[2][2], int32_t zero) {
    const I add = _mm256_set1_epi16(static_cast<int16_t>(zero));
    const I first = _mm256_add_epi16(_mm256_packs_epi32(q[0][0], q[0][1]), add);
    const I other = _mm256_add_epi16(_mm256_packs_epi32(q[1][0], q[1][1]), add);
    // Fours of bytes in each half: two of the first row, two of the other.
    const I fours = _mm256_packus_epi16(first, other);
    return _mm256_permutevar8x32_epi32(
        fours, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  }
  static void StoreRow0(uint8_t* p, int64_t n, Rows v) {
    StoreRaw(p, n, _mm256_castsi256_si128(v));
  }
  static void StoreRow1(uint8_t* p, int64_t n, Rows v) {
    StoreRaw(p, n, _mm256_extracti128_si256(v, 1));
  }
  template <int kN>
  static void LookupRows(const uint8_t* table, Rows (&v)[kN]) {
#pragma GCC unroll 16
    for (int i = 0; i < kN; ++i) v[i] = LookupTaps(table, v[i]);
  }

  using Taps = __m256i;
  static Taps NoTaps() { return _mm256_setzero_si256(); }
  static Taps LoadTaps(const uint8_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const I*>(p));
  }
  static void StoreTaps(uint8_t* p, int64_t n, Taps v) {
    if (n >= 32) {
      _mm256_storeu_si256(reinterpret_cast<I*>(p), v);
      return;
    }
    alignas(32) uint8_t buffer[32];
    _mm256_store_si256(reinterpret_cast<I*>(buffer), v);
    for (int64_t i = 0; i < n; ++i) p[i] = buffer[i];
  }
  static Taps PackBytes(const I (&q)[4], int32_t zero) {
    const I add = _mm256_set1_epi16(static_cast<int16_t>(zero));
    const I low = _mm256_add_epi16(_mm256_packs_epi32(q[0], q[1]), add);
    const I high = _mm256_add_epi16(_mm256_packs_epi32(q[2], q[3]), add);
    return _mm256_packus_epi16(low, high);
  }
  // Sixteen parts of the table, of which the upper half of a byte chooses one,
  // bit by bit.
  static Taps LookupTaps(const uint8_t* table, Taps v) {
    const I at = _mm256_and_si256(v, _mm256_set1_epi8(15));
    const I bits[4] = {_mm256_slli_epi16(v, 3), _mm256_slli_epi16(v, 2),
                       _mm256_slli_epi16(v, 1), v};
    return OneOfParts<4>(table, at, bits);
  }

  static __m128i ZeroRaw() { return _mm_setzero_si128(); }
  static __m128i LoadRaw(const uint8_t* p, int64_t n) {
    if (n >= kRawBytes) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    }
    alignas(16) uint8_t buffer[kRawBytes] = {};
    for (int64_t i = 0; i < n; ++i) buffer[i] = p[i];
    return _mm_load_si128(reinterpret_cast<const __m128i*>(buffer));
  }
  static void StoreRaw(uint8_t* p, int64_t n, __m128i v) {
    if (n >= kRawBytes) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v);
      return;
    }
    alignas(16) uint8_t buffer[kRawBytes];
    _mm_store_si128(reinterpret_cast<__m128i*>(buffer), v);
    for (int64_t i = 0; i < n; ++i) p[i] = buffer[i];
  }
  static __m128i Greater(__m128i a, __m128i b) { return _mm_max_epu8(a, b); }

 private:
  // Of 2 ^ kBits parts; a bit is the highest of each byte.
  template <int kBits>
  static I OneOfParts(const uint8_t* table, I at, const I (&bits)[4]) {
    if constexpr (kBits == 0) {
      const I entries = _mm256_broadcastsi128_si256(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
      return _mm256_shuffle_epi8(entries, at);
    } else {
      const I low = OneOfParts<kBits - 1>(table, at, bits);
      const I high = OneOfParts<kBits - 1>(table + (8 << kBits), at, bits);
      return _mm256_blendv_epi8(low, high, bits[kBits - 1]);
    }
  }
};

// Interleaved bytes for products of four at a time.
struct Int8Fours {
  static constexpr int kTapRows = 4;
  static void Interleave(const __m256i (&taps)[4], __m256i (&x)[4]) {
    const __m256i ab_low = _mm256_unpacklo_epi8(taps[0], taps[1]);
    const __m256i ab_high = _mm256_unpackhi_epi8(taps[0], taps[1]);
    const __m256i cd_low = _mm256_unpacklo_epi8(taps[2], taps[3]);
    const __m256i cd_high = _mm256_unpackhi_epi8(taps[2], taps[3]);
    x[0] = _mm256_unpacklo_epi16(ab_low, cd_low);
    x[1] = _mm256_unpackhi_epi16(ab_low, cd_low);
    x[2] = _mm256_unpacklo_epi16(ab_high, cd_high);
    x[3] = _mm256_unpackhi_epi16(ab_high, cd_high);
  }
  static void PutTaps(const int8_t (&w)[4], int8_t* p) {
    __builtin_memcpy(p, w, 4);
  }
};

}  // namespace
}  // namespace millrace::models
