// The int8 kernels without VNNI: pairs are multiplied into sixteen bits, which
// packing has made safe, and then added.

#include "models/cpu/kernels/avx2/int8_vec8.h"
#include "models/cpu/kernels/dense_int8/define.h"

namespace millrace::models {
namespace {

struct Shape : Int8Vec8 {
  static constexpr int kVectors = 2;
  static constexpr int kRows = 4;
  static constexpr int64_t kBlockBytes = 160 << 10;
  static constexpr bool kSafePairs = true;

  static I Dot(I acc, I x, I w) {
    const I pairs = _mm256_maddubs_epi16(x, w);
    return _mm256_add_epi32(acc,
                            _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
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
  static I DotTaps(I acc, I x, I w) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(x, w));
  }
};

}  // namespace

MILLRACE_DEFINE_INT8(Avx2Bytes, Shape)

}  // namespace millrace::models
