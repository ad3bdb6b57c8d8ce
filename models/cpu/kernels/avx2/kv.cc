// The ends of attention: writing a token's key and value into a page, and
// merging the partial results of the splits.

#include "models/cpu/kernels/avx2/head8.h"
#include "models/cpu/kernels/avx2/parts.h"
#include "models/cpu/kernels/avx2/vec8.h"

namespace millrace::models::avx2 {

namespace {

// A row's partials, one for each split.
struct Splits {
  const float* m;
  const float* l;
  const float* o;
  int64_t stride_ml;
  int64_t stride_o;
  int32_t count;
  float greatest;     // of m and the sink
  const float* sink;  // may be null
};

// kVectors * 8 dims, from `dim` on: sums stay in registers.
template <int kVectors>
void MergeDims(const Splits& s, int32_t dim, float* out) {
  __m256 acc[kVectors];
  for (__m256& v : acc) v = _mm256_setzero_ps();
  __m256 sum = _mm256_setzero_ps();  // the same in all lanes
  for (int32_t i = 0; i < s.count; ++i) {
    const __m256 c = Exp8(_mm256_set1_ps(s.m[i * s.stride_ml] - s.greatest));
    sum = _mm256_fmadd_ps(c, _mm256_set1_ps(s.l[i * s.stride_ml]), sum);
    const float* part = s.o + i * s.stride_o + dim;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      acc[v] = _mm256_fmadd_ps(c, _mm256_loadu_ps(part + 8 * v), acc[v]);
    }
  }
  if (s.sink != nullptr) {
    sum = _mm256_add_ps(sum, Exp8(_mm256_set1_ps(*s.sink - s.greatest)));
  }
  const __m256 inverse = _mm256_div_ps(_mm256_set1_ps(1.0f), sum);
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    _mm256_storeu_ps(out + dim + 8 * v, _mm256_mul_ps(acc[v], inverse));
  }
}

}  // namespace

void Merge(const float* m, const float* l, const float* o, int64_t stride_ml,
           int64_t stride_o, int32_t num_splits, int32_t head_dim,
           const float* sink, float* out) {
  Splits splits{m, l, o, stride_ml, stride_o, num_splits, m[0], sink};
  for (int32_t i = 1; i < num_splits; ++i) {
    const float mi = m[i * stride_ml];
    splits.greatest = mi > splits.greatest ? mi : splits.greatest;
  }
  if (sink != nullptr && *sink > splits.greatest) splits.greatest = *sink;
  int32_t dim = 0;
  for (; dim + 64 <= head_dim; dim += 64) MergeDims<8>(splits, dim, out);
  for (; dim < head_dim; dim += 8) MergeDims<1>(splits, dim, out);
}

namespace {

void WriteKv8(const float* k, const float* v, int32_t head_dim,
              int32_t index_in_page, void* k_page, void* v_page) {
  auto* to_k = static_cast<int8_t*>(k_page) +
               index_in_page / 16 * int64_t{head_dim} * 16 +
               index_in_page % 16 * 4;
  auto* to_v = static_cast<int8_t*>(v_page) + int64_t{index_in_page} * head_dim;
  // Quantised where the value will stand, so that no buffer is needed; the key
  // is quantised first, and its fours leave for the other page.
  const float dk = QuantizeHead(k, head_dim, to_v);
  for (int32_t d = 0; d < head_dim; d += 4) {
    for (int i = 0; i < 4; ++i) to_k[d * 16 + i] = to_v[d + i];
  }
  const float dv = QuantizeHead(v, head_dim, to_v);
  const_cast<float*>(ScalesOf(k_page, head_dim))[index_in_page] = dk;
  const_cast<float*>(ScalesOf(v_page, head_dim))[index_in_page] = dv;
}

}  // namespace

void WriteKv(const float* k, const float* v, int32_t head_dim,
             int32_t index_in_page, KvFormat format, void* k_page,
             void* v_page) {
  if (format == KvFormat::kInt8) {
    WriteKv8(k, v, head_dim, index_in_page, k_page, v_page);
    return;
  }
  // K is transposed in groups of 16 keys: element d goes 16 d further.
  const int64_t key =
      index_in_page / 16 * int64_t{head_dim} * 16 + index_in_page % 16;
  const int64_t value = int64_t{index_in_page} * head_dim;
  if (format == KvFormat::kF32) {
    float* to_k = static_cast<float*>(k_page) + key;
    float* to_v = static_cast<float*>(v_page) + value;
    for (int32_t d = 0; d < head_dim; ++d) to_k[d * 16] = k[d];
    for (int32_t d = 0; d < head_dim; d += 8) {
      _mm256_storeu_ps(to_v + d, _mm256_loadu_ps(v + d));
    }
    return;
  }
  constexpr int kRound = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  uint16_t* to_k = static_cast<uint16_t*>(k_page) + key;
  uint16_t* to_v = static_cast<uint16_t*>(v_page) + value;
  for (int32_t d = 0; d < head_dim; d += 8) {
    alignas(16) uint16_t halves[8];
    _mm_store_si128(reinterpret_cast<__m128i*>(halves),
                    _mm256_cvtps_ph(_mm256_loadu_ps(k + d), kRound));
    for (int i = 0; i < 8; ++i) to_k[(d + i) * 16] = halves[i];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to_v + d),
                     _mm256_cvtps_ph(_mm256_loadu_ps(v + d), kRound));
  }
}

}  // namespace millrace::models::avx2
