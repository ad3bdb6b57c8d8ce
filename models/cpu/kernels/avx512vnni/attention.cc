// Attention with 16 lanes and 32 registers: 6 rows x 4 vectors are 24
// accumulators.

#include "models/cpu/kernels/avx2/head8.h"
// After the file that defines ScalesOf and QuantizeHead.
#include "models/cpu/kernels/attention.h"

#include "models/cpu/kernels/avx2/vec8.h"
#include "models/cpu/kernels/avx512vnni/parts.h"
#include "models/cpu/kernels/avx512vnni/vec16.h"

namespace millrace::models::avx512vnni {
namespace {

struct Vectors {
  using F = __m512;
  using Mask = __mmask16;
  static constexpr int kLanes = 16;
  static constexpr int kAccumulators = 24;
  static constexpr int64_t kAheadBytes = 8192;
  static constexpr int kIntRows = 6;

  static F Zero() { return _mm512_setzero_ps(); }
  static F Set(float x) { return _mm512_set1_ps(x); }
  static F Broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static F Load(const float* p) { return _mm512_loadu_ps(p); }
  static void Store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F FromHalf(const uint16_t* p) {
    return _mm512_cvtph_ps(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F FromInt8(const int8_t* p) {
    return ToFloat(_mm512_cvtepi8_epi32(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  // vpdpbusd wants one side unsigned: keys get 128 added, which DotStart takes
  // back from the whole sum.
  using I = __m512i;
  static I LoadKeys(const int8_t* p) {
    return _mm512_xor_si512(_mm512_loadu_si512(p),
                            _mm512_set1_epi8(static_cast<char>(0x80)));
  }
  static I DotStart(int32_t sum) { return _mm512_set1_epi32(-128 * sum); }
  static I Dot(I acc, I k, const int8_t* four) {
    int32_t bytes;
    __builtin_memcpy(&bytes, four, 4);
    return _mm512_dpbusd_epi32(acc, k, _mm512_set1_epi32(bytes));
  }
  // _mm512_cvtepi32_ps, but g++ 12 believes that one reads what is undefined.
  static F ToFloat(__m512i x) {
    return __builtin_convertvector(reinterpret_cast<__v16si>(x), __v16sf);
  }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static F Div(F a, F b) { return _mm512_div_ps(a, b); }
  static F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F Max(F a, F b) { return _mm512_max_ps(a, b); }
  static F Exp(F x) { return Exp16(x); }
  static Mask First(int64_t n) { return FirstLanes16(n); }
  static F Keep(Mask mask, F x, F y) {
    return _mm512_mask_blend_ps(mask, y, x);
  }
  // The documented tree has eight lanes.
  using Sums = __m256;
  static Sums NoSums() { return _mm256_setzero_ps(); }
  static float SumOf(Sums l) { return LaneSum8(l); }
  static Sums AddLanes(Sums l, F x) {
    l = _mm256_add_ps(l, _mm512_castps512_ps256(x));
    return _mm256_add_ps(l, _mm512_extractf32x8_ps(x, 1));
  }
  static float GreatestLane(F x) {
    return LaneMax8(
        _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1)));
  }
};

}  // namespace

int64_t AttendScratchFloats(int32_t num_rows, int32_t head_dim) {
  return AttendTiles<Vectors>::ScratchFloats(num_rows, head_dim);
}

void Attend(const AttendArgs& args) { AttendTiles<Vectors>::Attend(args); }

}  // namespace millrace::models::avx512vnni
