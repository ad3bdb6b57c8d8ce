// Sixteen lanes of bytes and integers as kernels/dense_int8/gemm.h wants them:
// tiles of 12 rows and 2 vectors are 24 sums. Anonymous namespace.
#pragma once

#include "models/cpu/kernels/avx512/dense_vec16.h"

namespace millrace::models {
namespace {

// Table::Of(table, bytes): what each byte becomes.
template <class Table>
struct Int8Vec16 {
  using V = Vec16;
  using I = __m512i;
  using F = __m512;
  static constexpr int kVectors = 2;
  static constexpr int kRows = 12;
  static constexpr int64_t kBlockBytes = 256 << 10;
  static constexpr bool kHalves = true;
  static constexpr int64_t kFewPanels = 4;
  static constexpr bool kPairs = false;
  static constexpr int64_t kRawBytes = 64;

  static I LoadInts(const int32_t* p, int64_t n) {
    return _mm512_maskz_loadu_epi32(V::First(n), p);
  }
  static void StoreInts(int32_t* p, I v) { _mm512_storeu_si512(p, v); }
  static I ToInts(F v) { return _mm512_cvtps_epi32(v); }
  static I Four(const uint8_t* p) {
    int32_t word;
    __builtin_memcpy(&word, p, sizeof word);
    return _mm512_set1_epi32(word);
  }
  static I Weights(const int8_t* p) { return _mm512_loadu_si512(p); }
  static I Dot(I acc, I x, I w) { return _mm512_dpbusd_epi32(acc, x, w); }
  static F LoadBytes(const uint8_t* p, int64_t n) {
    const __m128i bytes =
        n >= 16 ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(p))
                : _mm_maskz_loadu_epi8(V::First(n), p);
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
  }
  static void StoreBytes(uint8_t* p, int64_t n, F v, int32_t zero) {
    const I q = _mm512_add_epi32(ToInts(v), _mm512_set1_epi32(zero));
    const __m128i bytes = _mm512_cvtepi32_epi8(q);
    if (n >= 16) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
    } else {
      _mm_mask_storeu_epi8(p, V::First(n), bytes);
    }
  }

  static void Lookup(const uint8_t* table, const uint8_t* x, int64_t n,
                     uint8_t* y) {
    for (int64_t i = 0; i < n; i += 64) {
      StoreRaw(y + i, n - i, LookupTaps(table, LoadRaw(x + i, n - i)));
    }
  }

  using Half = __m256i;
  static Half PackHalf(I a, I b, int32_t zero) {
    const I words =
        _mm512_add_epi16(_mm512_packs_epi32(a, b),
                         _mm512_set1_epi16(static_cast<int16_t>(zero)));
    const I order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    return _mm512_cvtepi16_epi8(_mm512_permutexvar_epi64(order, words));
  }
  static void StoreHalf(uint8_t* p, int64_t n, Half v) {
    if (n >= 32) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
    } else if (n > 0) {
      _mm256_mask_storeu_epi8(p, (1u << n) - 1, v);
    }
  }
  using Rows = __m512i;
  static Rows PackRows(const I (&q)[2][2], int32_t zero) {
    const I add = _mm512_set1_epi16(static_cast<int16_t>(zero));
    const I first = _mm512_add_epi16(_mm512_packs_epi32(q[0][0], q[0][1]), add);
    const I other = _mm512_add_epi16(_mm512_packs_epi32(q[1][0], q[1][1]), add);
    // Fours of bytes in each quarter: two of the first row, two of the other.
    const I fours = _mm512_packus_epi16(first, other);
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
        fours);
  }
  static void StoreRow0(uint8_t* p, int64_t n, Rows v) {
    StoreHalf(p, n, _mm512_castsi512_si256(v));
  }
  static void StoreRow1(uint8_t* p, int64_t n, Rows v) {
    StoreHalf(p, n, _mm512_extracti64x4_epi64(v, 1));
  }
  template <int kN>
  static void LookupRows(const uint8_t* table, Rows (&v)[kN]) {
#pragma GCC unroll 16
    for (int i = 0; i < kN; ++i) v[i] = LookupTaps(table, v[i]);
  }

  using Taps = __m512i;
  static constexpr int kTapRows = 4;
  static Taps NoTaps() { return _mm512_setzero_si512(); }
  static Taps LoadTaps(const uint8_t* p) { return _mm512_loadu_si512(p); }
  static void StoreTaps(uint8_t* p, int64_t n, Taps v) { StoreRaw(p, n, v); }
  static void Interleave(const Taps (&taps)[4], I (&x)[4]) {
    const I ab_low = _mm512_unpacklo_epi8(taps[0], taps[1]);
    const I ab_high = _mm512_unpackhi_epi8(taps[0], taps[1]);
    const I cd_low = _mm512_unpacklo_epi8(taps[2], taps[3]);
    const I cd_high = _mm512_unpackhi_epi8(taps[2], taps[3]);
    x[0] = _mm512_unpacklo_epi16(ab_low, cd_low);
    x[1] = _mm512_unpackhi_epi16(ab_low, cd_low);
    x[2] = _mm512_unpacklo_epi16(ab_high, cd_high);
    x[3] = _mm512_unpackhi_epi16(ab_high, cd_high);
  }
  static void PutTaps(const int8_t (&w)[4], int8_t* p) {
    __builtin_memcpy(p, w, 4);
  }
  static I DotTaps(I acc, I x, I w) { return Dot(acc, x, w); }
  static Taps PackBytes(const I (&q)[4], int32_t zero) {
    const I add = _mm512_set1_epi16(static_cast<int16_t>(zero));
    const I low = _mm512_add_epi16(_mm512_packs_epi32(q[0], q[1]), add);
    const I high = _mm512_add_epi16(_mm512_packs_epi32(q[2], q[3]), add);
    return _mm512_packus_epi16(low, high);
  }
  static Taps LookupTaps(const uint8_t* table, Taps v) {
    return Table::Of(table, v);
  }

  static I ZeroRaw() { return _mm512_setzero_si512(); }
  static I LoadRaw(const uint8_t* p, int64_t n) {
    if (n == 32) {  // faster than masks
      return _mm512_zextsi256_si512(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    }
    return n >= 64 ? _mm512_loadu_si512(p)
                   : _mm512_maskz_loadu_epi8(FirstBytes(n), p);
  }
  static void StoreRaw(uint8_t* p, int64_t n, I v) {
    if (n >= 64) {
      _mm512_storeu_si512(p, v);
    } else if (n == 32) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                          _mm512_castsi512_si256(v));
    } else {
      _mm512_mask_storeu_epi8(p, FirstBytes(n), v);
    }
  }
  static I Greater(I a, I b) { return _mm512_max_epu8(a, b); }

 private:
  static __mmask64 FirstBytes(int64_t n) { return (uint64_t{1} << n) - 1; }
};

}  // namespace
}  // namespace millrace::models
