// Attention of a few query rows over one split of at most 256 keys, the merge
// of splits, and the layout of a KV page.
//
// K lies transposed in groups of 16 keys ([group][dim][16]), so that a vector
// kernel has keys in its lanes and needs no horizontal sum; V lies as it came
// ([key][dim]), lanes are dims there. A page is 64 keys. In int8, four
// neighbouring dims of a key stay together, as dot-product instructions want
// them, and a scale for each key follows the page's integers.
// Source: Dao et al. 2022 (FlashAttention), Dao 2023 (splits over keys).

#include "models/cpu/kernels/scalar/numbers.h"
#include "models/cpu/kernels/scalar/parts.h"

namespace millrace::models::scalar {
namespace {

constexpr int kSplitKeys = 256;

float Load(KvFormat format, const void* page, int64_t at) {
  if (format == KvFormat::kF32) return static_cast<const float*>(page)[at];
  if (format == KvFormat::kInt8) return static_cast<const int8_t*>(page)[at];
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
int64_t Key8At(int32_t index_in_page, int32_t head_dim, int32_t d) {
  return (index_in_page / 16 * int64_t{head_dim} + d / 4 * 4) * 16 +
         index_in_page % 16 * 4 + d % 4;
}

// Scales of an int8 page.
const float* ScalesOf(const void* page, int32_t head_dim) {
  return reinterpret_cast<const float*>(static_cast<const char*>(page) +
                                        int64_t{kPageKeys} * head_dim);
}
float* ScalesOf(void* page, int32_t head_dim) {
  return const_cast<float*>(ScalesOf(static_cast<const void*>(page), head_dim));
}

// Scale of a head; `inverse` is what its values are multiplied by.
float HeadScale(const float* x, int32_t head_dim, float* inverse) {
  constexpr float kLeastNormal = 0x1p-126f;
  float greatest = 0.0f;
  for (int32_t i = 0; i < head_dim; ++i) {
    const float magnitude = __builtin_fabsf(x[i]);
    greatest = magnitude > greatest ? magnitude : greatest;
  }
  const float d = greatest / 127.0f;
  const bool zero = d < kLeastNormal;
  *inverse = zero ? 0.0f : 1.0f / d;
  return zero ? 0.0f : d;
}

// cap * tanh(s / cap)
float SoftCap(float s, float cap) {
  return (1.0f - 2.0f / (Exp(s * (2.0f / cap)) + 1.0f)) * cap;
}

float Score8(const AttendArgs& args, const float* q, int32_t key) {
  const void* page = args.k_pages[key / kPageKeys];
  const int32_t index = key % kPageKeys;
  float inverse;
  const float dq = HeadScale(q, args.head_dim, &inverse);
  int32_t sum = 0;
  for (int32_t d = 0; d < args.head_dim; ++d) {
    sum += RoundToInt(q[d] * inverse) *
           static_cast<const int8_t*>(page)[Key8At(index, args.head_dim, d)];
  }
  return static_cast<float>(sum) * (dq * ScalesOf(page, args.head_dim)[index]);
}

}  // namespace

int64_t AttendScratchFloats(int32_t num_rows, int32_t /*head_dim*/) {
  return int64_t{num_rows} * kSplitKeys;
}

void Attend(const AttendArgs& args) {
  for (int32_t row = 0; row < args.num_rows; ++row) {
    const float* q = args.q + row * args.q_stride;
    float* o = args.o + row * args.o_stride;
    float* p = args.scratch + int64_t{row} * kSplitKeys;  // scores, then exp
    const int32_t hidden = args.hidden != nullptr ? args.hidden[row] : 0;
    const int32_t visible = args.visible[row];

    float m = -__builtin_inff();
    const bool int8 = args.kv_format == KvFormat::kInt8;
    for (int32_t k = hidden; k < visible; ++k) {
      const void* page = args.k_pages[k / kPageKeys];
      float s = int8 ? Score8(args, q, k) : 0.0f;
      for (int32_t d = 0; d < args.head_dim && !int8; ++d) {
        const int64_t at = KeyAt(k % kPageKeys, args.head_dim, d);
        s = Fma(q[d], Load(args.kv_format, page, at), s);
      }
      if (args.softcap > 0) s = SoftCap(s, args.softcap);
      p[k] = s;
      m = s > m ? s : m;
    }

    float lanes[8] = {};
    for (int32_t k = hidden; k < visible; ++k) {
      p[k] = Exp(p[k] - m);
      lanes[k % 8] += p[k];
    }
    args.m[row] = m;
    args.l[row] = LaneSum(lanes);

    for (int32_t d = 0; d < args.head_dim; ++d) o[d] = 0.0f;
    for (int32_t k = hidden; k < visible; ++k) {
      const void* page = args.v_pages[k / kPageKeys];
      const int64_t key = int64_t{k % kPageKeys} * args.head_dim;
      const float w =
          int8 ? p[k] * ScalesOf(page, args.head_dim)[k % kPageKeys] : p[k];
      for (int32_t d = 0; d < args.head_dim; ++d) {
        o[d] = Fma(w, Load(args.kv_format, page, key + d), o[d]);
      }
    }
  }
}

void Merge(const float* m, const float* l, const float* o, int64_t stride_ml,
           int64_t stride_o, int32_t num_splits, int32_t head_dim,
           const float* sink, float* out) {
  float greatest = m[0];
  for (int32_t i = 1; i < num_splits; ++i) {
    const float mi = m[i * stride_ml];
    greatest = mi > greatest ? mi : greatest;
  }
  if (sink != nullptr && *sink > greatest) greatest = *sink;
  float sum = 0.0f;
  for (int32_t d = 0; d < head_dim; ++d) out[d] = 0.0f;
  for (int32_t i = 0; i < num_splits; ++i) {
    const float c = Exp(m[i * stride_ml] - greatest);
    sum = Fma(c, l[i * stride_ml], sum);
    for (int32_t d = 0; d < head_dim; ++d) {
      out[d] = Fma(c, o[i * stride_o + d], out[d]);
    }
  }
  if (sink != nullptr) sum += Exp(*sink - greatest);
  const float inverse = 1.0f / sum;
  for (int32_t d = 0; d < head_dim; ++d) out[d] *= inverse;
}

void WriteKv(const float* k, const float* v, int32_t head_dim,
             int32_t index_in_page, KvFormat format, void* k_page,
             void* v_page) {
  if (format == KvFormat::kInt8) {
    float inverse_k, inverse_v;
    ScalesOf(k_page, head_dim)[index_in_page] =
        HeadScale(k, head_dim, &inverse_k);
    ScalesOf(v_page, head_dim)[index_in_page] =
        HeadScale(v, head_dim, &inverse_v);
    for (int32_t d = 0; d < head_dim; ++d) {
      static_cast<int8_t*>(k_page)[Key8At(index_in_page, head_dim, d)] =
          static_cast<int8_t>(RoundToInt(k[d] * inverse_k));
      static_cast<int8_t*>(v_page)[int64_t{index_in_page} * head_dim + d] =
          static_cast<int8_t>(RoundToInt(v[d] * inverse_v));
    }
    return;
  }
  for (int32_t d = 0; d < head_dim; ++d) {
    Store(format, k_page, KeyAt(index_in_page, head_dim, d), k[d]);
    Store(format, v_page, int64_t{index_in_page} * head_dim + d, v[d]);
  }
}

}  // namespace millrace::models::scalar
