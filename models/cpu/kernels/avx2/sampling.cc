// The two passes over a row of logits that sampling needs.

#include "models/cpu/kernels/avx2/parts.h"
#include "models/cpu/kernels/avx2/vec8.h"

namespace millrace::models::avx2 {

float Max(const float* x, int64_t n) {
  // Four independent maxima hide the latency; the order cannot matter.
  const __m256 lowest = _mm256_set1_ps(-__builtin_inff());
  __m256 m[4] = {lowest, lowest, lowest, lowest};
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    for (int j = 0; j < 4; ++j) {
      m[j] = _mm256_max_ps(_mm256_loadu_ps(x + i + 8 * j), m[j]);
    }
  }
  for (; i < n; i += 8) {
    const __m256i mask = FirstLanes(n - i);
    const __m256 v = _mm256_blendv_ps(lowest, _mm256_maskload_ps(x + i, mask),
                                      _mm256_castsi256_ps(mask));
    m[0] = _mm256_max_ps(v, m[0]);
  }
  return LaneMax8(
      _mm256_max_ps(_mm256_max_ps(m[0], m[1]), _mm256_max_ps(m[2], m[3])));
}

double SumExp(const float* x, int64_t n, float offset, float scale,
              float* out) {
  const __m256 minus = _mm256_set1_ps(offset);
  const __m256 times = _mm256_set1_ps(scale);
  __m256d low = _mm256_setzero_pd();   // lanes 0…3
  __m256d high = _mm256_setzero_pd();  // lanes 4…7
  for (Chunks8 c(n); c.More(); c.Next()) {
    __m256 e = Exp8(_mm256_mul_ps(_mm256_sub_ps(c.Load(x), minus), times));
    if (!c.Whole()) e = _mm256_and_ps(e, _mm256_castsi256_ps(c.Mask()));
    low = _mm256_add_pd(low, _mm256_cvtps_pd(_mm256_castps256_ps128(e)));
    high = _mm256_add_pd(high, _mm256_cvtps_pd(_mm256_extractf128_ps(e, 1)));
    if (out != nullptr) c.Store(out, e);
  }
  const __m256d four = _mm256_add_pd(low, high);
  const __m128d two =
      _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

}  // namespace millrace::models::avx2
