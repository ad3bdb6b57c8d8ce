// The int8 kernels with the VNNI of 512 bits: tiles of 12 rows and 2 vectors
// are 24 sums.

#include "models/cpu/kernels/avx512/dense_vec16.h"
#include "models/cpu/kernels/dense_int8/define.h"

namespace millrace::models {
namespace {

struct Shape {
  using V = Vec16;
  using I = __m512i;
  using F = __m512;
  static constexpr int kVectors = 2;
  static constexpr int kRows = 12;
  static constexpr int64_t kBlockBytes = 256 << 10;
  static constexpr bool kSafePairs = false;
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

  // The table as 128 words: one is chosen by the upper seven bits of a byte,
  // its half by the lowest.
  static void Lookup(const uint8_t* table, const uint8_t* x, int64_t n,
                     uint8_t* y) {
    const I t0 = _mm512_loadu_si512(table);
    const I t1 = _mm512_loadu_si512(table + 64);
    const I t2 = _mm512_loadu_si512(table + 128);
    const I t3 = _mm512_loadu_si512(table + 192);
    const I one = _mm512_set1_epi16(1);
    const I half = _mm512_set1_epi16(128);
    for (int64_t i = 0; i < n; i += 32) {
      const int64_t live = n - i;
      const auto mask =
          static_cast<__mmask32>(live >= 32 ? ~0u : (1u << live) - 1);
      const I q = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(mask, x + i));
      const I at = _mm512_srli_epi16(q, 1);
      const I low = _mm512_permutex2var_epi16(t0, at, t1);
      const I high = _mm512_permutex2var_epi16(t2, at, t3);
      I word =
          _mm512_mask_blend_epi16(_mm512_test_epi16_mask(q, half), low, high);
      word =
          _mm512_mask_srli_epi16(word, _mm512_test_epi16_mask(q, one), word, 8);
      _mm256_mask_storeu_epi8(y + i, mask, _mm512_cvtepi16_epi8(word));
    }
  }

  static I ZeroRaw() { return _mm512_setzero_si512(); }
  static I LoadRaw(const uint8_t* p, int64_t n) {
    return n >= 64 ? _mm512_loadu_si512(p)
                   : _mm512_maskz_loadu_epi8(FirstBytes(n), p);
  }
  static void StoreRaw(uint8_t* p, int64_t n, I v) {
    if (n >= 64) {
      _mm512_storeu_si512(p, v);
    } else {
      _mm512_mask_storeu_epi8(p, FirstBytes(n), v);
    }
  }
  static I Greater(I a, I b) { return _mm512_max_epu8(a, b); }

 private:
  static __mmask64 FirstBytes(int64_t n) { return (uint64_t{1} << n) - 1; }
};

}  // namespace

MILLRACE_DEFINE_INT8(Avx512VnniBytes, Shape)

}  // namespace millrace::models
