// Attention with 8 lanes and 16 registers: 6 rows x 2 vectors, or few rows x 4,
// are 12 accumulators, and the rest is what they are made from.

#include "models/cpu/kernels/avx2/head8.h"
// After the file that defines ScalesOf and QuantizeHead.
#include "models/cpu/kernels/attention.h"

#include "models/cpu/kernels/avx2/parts.h"
#include "models/cpu/kernels/avx2/vec8.h"

namespace millrace::models::avx2 {
namespace {

struct Vectors {
  using F = __m256;
  using Mask = __m256i;
  static constexpr int kLanes = 8;
  static constexpr int kAccumulators = 12;
  static constexpr int64_t kAheadBytes = 16384;
  static constexpr int kIntRows = 3;  // 6 accumulators and what Dot needs

  static F Zero() { return _mm256_setzero_ps(); }
  static F Set(float x) { return _mm256_set1_ps(x); }
  static F Broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static F Load(const float* p) { return _mm256_loadu_ps(p); }
  static void Store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static F FromHalf(const uint16_t* p) {
    return _mm256_cvtph_ps(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static F FromInt8(const int8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  using I = __m256i;
  static I LoadKeys(const int8_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static I DotStart(int32_t /*sum*/) { return _mm256_setzero_si256(); }
  // |q| * (k with q's sign): pairs reach 2 * 127 * 127, which 16 bits hold.
  static I Dot(I acc, I k, const int8_t* four) {
    int32_t bytes;
    __builtin_memcpy(&bytes, four, 4);
    const I q = _mm256_set1_epi32(bytes);
    const I pairs =
        _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(k, q));
    return _mm256_add_epi32(acc,
                            _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  static F ToFloat(I x) { return _mm256_cvtepi32_ps(x); }
  static F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static F Div(F a, F b) { return _mm256_div_ps(a, b); }
  static F Sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F Max(F a, F b) { return _mm256_max_ps(a, b); }
  static F Exp(F x) { return Exp8(x); }
  static Mask First(int64_t n) { return FirstLanes(n); }
  static F Keep(Mask mask, F x, F y) {
    return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(mask));
  }
  using Sums = __m256;
  static Sums NoSums() { return _mm256_setzero_ps(); }
  static float SumOf(Sums l) { return LaneSum8(l); }
  static Sums AddLanes(Sums l, F x) { return _mm256_add_ps(l, x); }
  static float GreatestLane(F x) { return LaneMax8(x); }
};

}  // namespace

int64_t AttendScratchFloats(int32_t num_rows, int32_t head_dim) {
  return AttendTiles<Vectors>::ScratchFloats(num_rows, head_dim);
}

void Attend(const AttendArgs& args) { AttendTiles<Vectors>::Attend(args); }

}  // namespace millrace::models::avx2
