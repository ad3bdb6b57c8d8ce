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
};

}  // namespace

MILLRACE_DEFINE_INT8(Avx2Bytes, Shape)

}  // namespace millrace::models
