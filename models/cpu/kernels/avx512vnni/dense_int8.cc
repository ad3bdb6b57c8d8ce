// The int8 kernels with the VNNI of 512 bits.

#include "models/cpu/kernels/avx512vnni/int8_vec16.h"
#include "models/cpu/kernels/dense_int8/define.h"

namespace millrace::models {
namespace {

// The table as 128 words: one is chosen by the upper seven bits of a byte,
// its half by the lowest.
struct ByWords {
  static __m512i Of(const uint8_t* table, __m512i v) {
    const __m512i even =
        LookupWords(table, _mm512_and_si512(v, _mm512_set1_epi16(255)));
    const __m512i odd = LookupWords(table, _mm512_srli_epi16(v, 8));
    return _mm512_or_si512(even, _mm512_slli_epi16(odd, 8));
  }

 private:
  // Of bytes that stand in words.
  static __m512i LookupWords(const uint8_t* table, __m512i q) {
    const __m512i t0 = _mm512_loadu_si512(table);
    const __m512i t1 = _mm512_loadu_si512(table + 64);
    const __m512i t2 = _mm512_loadu_si512(table + 128);
    const __m512i t3 = _mm512_loadu_si512(table + 192);
    const __m512i at = _mm512_srli_epi16(q, 1);
    const __m512i low = _mm512_permutex2var_epi16(t0, at, t1);
    const __m512i high = _mm512_permutex2var_epi16(t2, at, t3);
    const __m512i word = _mm512_mask_blend_epi16(
        _mm512_test_epi16_mask(q, _mm512_set1_epi16(128)), low, high);
    // The upper half where the lowest bit is set.
    const __m512i half = _mm512_mask_srli_epi16(
        word, _mm512_test_epi16_mask(q, _mm512_set1_epi16(1)), word, 8);
    return _mm512_and_si512(half, _mm512_set1_epi16(255));
  }
};

}  // namespace

MILLRACE_DEFINE_INT8(Avx512VnniBytes, Int8Vec16<ByWords>)

}  // namespace millrace::models
