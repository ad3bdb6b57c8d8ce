// The int8 kernels without VNNI. Small weights are multiplied in pairs, whose
// sums of sixteen bits packing has made safe, others as words.

#include "models/cpu/kernels/avx2/int8_vec8.h"
#include "models/cpu/kernels/dense_int8/define.h"

namespace millrace::models {
namespace {

struct Shape : Int8Vec8 {
  static constexpr int kVectors = 2;
  static constexpr int kRows = 4;
  static constexpr int64_t kBlockBytes = 160 << 10;
  static constexpr bool kHalves = true;
  static constexpr int64_t kFewPanels = 8;
  static constexpr bool kPairs = true;
  static constexpr int kWordRows = 6;
  static constexpr double kMostFurther = 0.4;

  static I Dot(I acc, I x, I w) {
    return AddPairs(acc, _mm256_maddubs_epi16(x, w));
  }
  static I DotTwo(I acc, I x0, I w0, I x1, I w1) {
    return AddPairs(acc, _mm256_add_epi16(_mm256_maddubs_epi16(x0, w0),
                                          _mm256_maddubs_epi16(x1, w1)));
  }
  static I WordWeights(const int8_t* p) {
    return _mm256_cvtepi8_epi16(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static I DotWords(I acc, I x, I w) {
    return Sum(acc, _mm256_madd_epi16(x, w));
  }
  static void StoreWords(uint16_t* p, __m128i raw) {
    _mm256_storeu_si256(reinterpret_cast<I*>(p), _mm256_cvtepu8_epi16(raw));
  }

  // Taps go two at a time as words, which cannot overflow.
  static constexpr int kTapRows = 2;
  static void Interleave(const I (&taps)[2], I (&x)[4]) {
    const I zero = _mm256_setzero_si256();
    const I low = _mm256_unpacklo_epi8(taps[0], taps[1]);
    const I high = _mm256_unpackhi_epi8(taps[0], taps[1]);
    x[0] = _mm256_unpacklo_epi8(low, zero);
    x[1] = _mm256_unpackhi_epi8(low, zero);
    x[2] = _mm256_unpacklo_epi8(high, zero);
    x[3] = _mm256_unpackhi_epi8(high, zero);
  }
  static void PutTaps(const int8_t (&w)[2], int8_t* p) {
    const int16_t words[2] = {w[0], w[1]};
    __builtin_memcpy(p, words, 4);
  }
  static I DotTaps(I acc, I x, I w) { return DotWords(acc, x, w); }

 private:
  static I AddPairs(I acc, I pairs) {
    return Sum(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  // In place, which keeps the compiler from copying sums around in loops.
  static I Sum(I acc, I v) {
    asm("vpaddd %[v], %[acc], %[acc]" : [acc] "+x"(acc) : [v] "x"(v));
    return acc;
  }
};

}  // namespace

MILLRACE_DEFINE_INT8(Avx2Bytes, Shape)

}  // namespace millrace::models
