// Attention of a few query rows over one split of at most 256 keys, the merge
// of splits, and the layout of a KV page.
//
// K lies transposed in groups of 16 keys ([group][dim][16]), so that a vector
// kernel has keys in its lanes and needs no horizontal sum; V lies as it came
// ([key][dim]), lanes are dims there. A page is 64 keys.
// Source: Dao et al. 2022 (FlashAttention), Dao 2023 (splits over keys).

#include "models/cpu/kernels/scalar/numbers.h"
#include "models/cpu/kernels/scalar/parts.h"

namespace millrace::models::scalar {
namespace {

constexpr int kPageKeys = 64;
constexpr int kSplitKeys = 256;

float Load(KvFormat format, const void* page, int64_t at) {
  if (format == KvFormat::kF32) return static_cast<const float*>(page)[at];
  return FloatOfHalf(static_cast<const uint16_t*>(page)[at]);
}

void Store(KvFormat format, void* page, int64_t at, float value) {
  if (format == KvFormat::kF32) {
    static_cast<float*>(page)[at] = value;
  } else {
    static_cast<uint16_t*>(page)[at] = HalfOfFloat(value);
  }
}

// Where element d of a key stands in its K page.
int64_t KeyAt(int32_t index_in_page, int32_t head_dim, int32_t d) {
  return (index_in_page / 16 * int64_t{head_dim} + d) * 16 + index_in_page % 16;
}

}  // namespace

int64_t AttendScratchFloats(int32_t num_rows) {
  return int64_t{num_rows} * kSplitKeys;
}

void Attend(const AttendArgs& args) {
  for (int32_t row = 0; row < args.num_rows; ++row) {
    const float* q = args.q + row * args.q_stride;
    float* o = args.o + row * args.o_stride;
    float* p = args.scratch + int64_t{row} * kSplitKeys;  // scores, then exp
    const int32_t visible = args.visible[row];

    float m = -__builtin_inff();
    for (int32_t k = 0; k < visible; ++k) {
      const void* page = args.k_pages[k / kPageKeys];
      float s = 0.0f;
      for (int32_t d = 0; d < args.head_dim; ++d) {
        const int64_t at = KeyAt(k % kPageKeys, args.head_dim, d);
        s = Fma(q[d], Load(args.kv_format, page, at), s);
      }
      p[k] = s;
      m = s > m ? s : m;
    }

    float lanes[8] = {};
    for (int32_t k = 0; k < visible; ++k) {
      p[k] = Exp(p[k] - m);
      lanes[k % 8] += p[k];
    }
    args.m[row] = m;
    args.l[row] = LaneSum(lanes);

    for (int32_t d = 0; d < args.head_dim; ++d) o[d] = 0.0f;
    for (int32_t k = 0; k < visible; ++k) {
      const void* page = args.v_pages[k / kPageKeys];
      const int64_t key = int64_t{k % kPageKeys} * args.head_dim;
      for (int32_t d = 0; d < args.head_dim; ++d) {
        o[d] = Fma(p[k], Load(args.kv_format, page, key + d), o[d]);
      }
    }
  }
}

void Merge(const float* m, const float* l, const float* o, int64_t stride_ml,
           int64_t stride_o, int32_t num_splits, int32_t head_dim, float* out) {
  float greatest = m[0];
  for (int32_t i = 1; i < num_splits; ++i) {
    const float mi = m[i * stride_ml];
    greatest = mi > greatest ? mi : greatest;
  }
  float sum = 0.0f;
  for (int32_t d = 0; d < head_dim; ++d) out[d] = 0.0f;
  for (int32_t i = 0; i < num_splits; ++i) {
    const float c = Exp(m[i * stride_ml] - greatest);
    sum = Fma(c, l[i * stride_ml], sum);
    for (int32_t d = 0; d < head_dim; ++d) {
      out[d] = Fma(c, o[i * stride_o + d], out[d]);
    }
  }
  const float inverse = 1.0f / sum;
  for (int32_t d = 0; d < head_dim; ++d) out[d] *= inverse;
}

void WriteKv(const float* k, const float* v, int32_t head_dim,
             int32_t index_in_page, KvFormat format, void* k_page,
             void* v_page) {
  for (int32_t d = 0; d < head_dim; ++d) {
    Store(format, k_page, KeyAt(index_in_page, head_dim, d), k[d]);
    Store(format, v_page, int64_t{index_in_page} * head_dim + d, v[d]);
  }
}

}  // namespace millrace::models::scalar
