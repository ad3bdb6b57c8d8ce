// The ends of attention: writing a token's key and value into a page, and
// merging the partial results of the splits.

#include "models/cpu/kernels/neon/head8.h"
#include "models/cpu/kernels/neon/parts.h"
#include "models/cpu/kernels/neon/vec8.h"

namespace millrace::models::neon {

void Merge(const float* m, const float* l, const float* o, int64_t stride_ml,
           int64_t stride_o, int32_t num_splits, int32_t head_dim,
           const float* sink, float* out) {
  using V = Neon8;
  float greatest = m[0];
  for (int32_t i = 1; i < num_splits; ++i) {
    const float mi = m[i * stride_ml];
    greatest = mi > greatest ? mi : greatest;
  }
  if (sink != nullptr && *sink > greatest) greatest = *sink;
  for (int32_t dim = 0; dim < head_dim; dim += 8) {
    Floats8 acc = V::Zero();
    Floats8 sum = V::Zero();  // the same in all lanes
    for (int32_t i = 0; i < num_splits; ++i) {
      const Floats8 c = V::Exp(V::Set(m[i * stride_ml] - greatest));
      sum = V::Fma(c, V::Set(l[i * stride_ml]), sum);
      acc = V::Fma(c, V::Load(o + i * stride_o + dim), acc);
    }
    if (sink != nullptr) sum = V::Add(sum, V::Exp(V::Set(*sink - greatest)));
    V::Store(out + dim, V::Mul(acc, V::Div(V::Set(1.0f), sum)));
  }
}

namespace {

void WriteKv8(const float* k, const float* v, int32_t head_dim,
              int32_t index_in_page, void* k_page, void* v_page) {
  auto* to_k = static_cast<int8_t*>(k_page) +
               index_in_page / 16 * int64_t{head_dim} * 16 +
               index_in_page % 16 * 4;
  auto* to_v = static_cast<int8_t*>(v_page) + int64_t{index_in_page} * head_dim;
  // The key is quantised where the value will stand, so that no buffer is
  // needed, and leaves in fours for its own page.
  const float dk = QuantizeHead(k, head_dim, to_v);
  for (int32_t d = 0; d < head_dim; d += 4) {
    __builtin_memcpy(to_k + d * 16, to_v + d, 4);
  }
  const float dv = QuantizeHead(v, head_dim, to_v);
  const_cast<float*>(ScalesOf(k_page, head_dim))[index_in_page] = dk;
  const_cast<float*>(ScalesOf(v_page, head_dim))[index_in_page] = dv;
}

}  // namespace

void WriteKv(const float* k, const float* v, int32_t head_dim,
             int32_t index_in_page, KvFormat format, void* k_page,
             void* v_page) {
  using V = Neon8;
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
    for (int32_t d = 0; d < head_dim; ++d) to_k[d * 16] = k[d];
    __builtin_memcpy(static_cast<float*>(v_page) + value, v,
                     sizeof(float) * static_cast<size_t>(head_dim));
    return;
  }
  uint16_t* to_k = static_cast<uint16_t*>(k_page) + key;
  uint16_t* to_v = static_cast<uint16_t*>(v_page) + value;
  for (int32_t d = 0; d < head_dim; d += 8) {
    uint16_t halves[8];
    vst1q_u16(halves, V::ToHalves(V::Load(k + d)));
    for (int i = 0; i < 8; ++i) to_k[(d + i) * 16] = halves[i];
    vst1q_u16(to_v + d, V::ToHalves(V::Load(v + d)));
  }
}

}  // namespace millrace::models::neon
