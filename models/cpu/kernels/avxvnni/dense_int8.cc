// The int8 kernels with the VNNI of 256 bits.

#include "models/cpu/kernels/avx2/int8_vec8.h"
#include "models/cpu/kernels/dense_int8/define.h"

namespace millrace::models {
namespace {

struct Shape : Int8Vec8, Int8Fours {
  static constexpr int kVectors = 2;
  static constexpr int kRows = 6;
  static constexpr int64_t kBlockBytes = 160 << 10;
  static constexpr bool kHalves = false;
  static constexpr int64_t kFewPanels = 8;
  static constexpr bool kPairs = false;

  static I Dot(I acc, I x, I w) { return _mm256_dpbusd_avx_epi32(acc, x, w); }
  static I DotTaps(I acc, I x, I w) { return Dot(acc, x, w); }
};

}  // namespace

MILLRACE_DEFINE_INT8(AvxVnniBytes, Shape)

}  // namespace millrace::models
