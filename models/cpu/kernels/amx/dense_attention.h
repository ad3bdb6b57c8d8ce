// Attention of one head in tiles: scores of 32 queries and a chunk of keys are
// made in f32, turned into bf16 weights by AVX-512 and multiplied with the
// values. All of this lies in a scratch of L1's and L2's size; keys and values
// are packed as weights are. The chain stands in graph_kernels.h
// (AmxBf16Products): that of all attention, but scores are scaled, not queries,
// and weights are powers of 2 by a shorter polynomial, since bf16 keeps 8 bits
// of them.
//
// Written over a type `Tiles`. Anonymous namespace.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "models/cpu/graph_kernels.h"
#include "models/cpu/kernels/amx/tile_config.h"
#include "models/cpu/kernels/avx512bf16/bf16_factors.h"
#include "models/cpu/kernels/dense/math.h"

namespace millrace::models {
namespace {

template <class Tiles>
class TileAttention {
 public:
  static int64_t ScratchFloats(int64_t d, int64_t dv) {
    return kRows * (LdBytes(d) / 4 + kLdScores + LdBytes(kChunk) / 4 +
                    2 * LdValues(dv));
  }

  static void Run(Tiles& tiles, const AttentionArgs& args) {
    TileConfig config;
    for (int i = 0; i < 8; ++i) config.Shape(i, kTileRows, kStepBytes);
    tiles.Configure(config);
    TileAttention attention(tiles, args);
    for (int64_t row = args.row_begin; row < args.row_end; row += kRows) {
      const int64_t left = args.row_end - row;
      attention.Rows(row, left < kRows ? left : kRows);
    }
    tiles.Release();
  }

 private:
  using V = KeptVec16;
  using F = V::F;
  static constexpr int64_t kTileRows = 16;
  static constexpr int64_t kRows = 2 * kTileRows;
  static constexpr int64_t kChunk = 512;  // keys
  static constexpr int64_t kStep = 32;    // of k, and outputs of a panel
  static constexpr int64_t kStepBytes = 64;
  static constexpr int64_t kPanelStepBytes = 2048;
  static constexpr int64_t kLdScores = kChunk + 16;
  static constexpr float kNothing = -__builtin_inff();
  static constexpr float kLog2E = 1.44269504f;

  static int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }
  static int64_t Steps(int64_t k) { return (k + kStep - 1) / kStep; }
  // Rows of factors are an odd number of lines apart.
  static int64_t LdBytes(int64_t k) { return (Steps(k) | 1) * kStepBytes; }
  static int64_t LdValues(int64_t dv) { return Steps(dv) * kStep + 16; }

  TileAttention(Tiles& tiles, const AttentionArgs& args)
      : tiles_(tiles),
        a_(args),
        ld_q_(LdBytes(args.d)),
        ld_v_(LdValues(args.dv)) {
    auto* at = reinterpret_cast<uint8_t*>(args.scratch);
    q_ = at;
    weights_ = q_ + kRows * ld_q_;
    scores_ = reinterpret_cast<float*>(weights_ + kRows * kLdWeights);
    chunk_ = scores_ + kRows * kLdScores;
    total_ = chunk_ + kRows * ld_v_;
  }

  // Keys of the whole head that a row sees.
  int64_t Visible(int64_t row) const {
    if (!a_.causal) return a_.num_keys;
    const int64_t limit = row + a_.causal_offset + 1;
    return limit < 0 ? 0 : Smaller(limit, a_.num_keys);
  }

  void Rows(int64_t row, int64_t rows) {
    x_ = q_;
    ld_x_ = ld_q_;
    if (a_.q_bf16 != nullptr && a_.d % kStep == 0 && rows == kRows) {
      // As they lie.
      x_ = reinterpret_cast<const uint8_t*>(a_.q_bf16 + row * a_.ld_q);
      ld_x_ = 2 * a_.ld_q;
    } else if (a_.q_bf16 != nullptr) {
      CopyRows(a_.q_bf16 + row * a_.ld_q, rows);
    } else {
      CopyRows(a_.q + row * a_.ld_q, rows);
    }
    for (int64_t r = 0; r < rows; ++r) sum_[r] = 0.0f;
    // The last row sees farthest.
    const int64_t end = Visible(row + rows - 1);
    for (int64_t key = 0; key < end; key += kChunk) {
      Chunk(row, rows, key, Smaller(end - key, kChunk));
    }
    for (int64_t r = 0; r < rows; ++r) PutRow(row + r, r);
  }

  // Rounded, and 0 until a step is full.
  template <class T>
  void CopyRows(const T* q, int64_t rows) const {
    for (int64_t r = 0; r < rows; ++r, q += a_.ld_q) {
      uint8_t* to = q_ + r * ld_q_;
      for (int64_t i = 0; i < a_.d; i += kStep, to += kStepBytes) {
        Round(V::LoadFirst(q + i, a_.d - i),
              V::LoadFirst(q + i + 16, a_.d - i - 16), to);
      }
    }
  }
  static void Round(F low, F high, uint8_t* to) {
    _mm512_storeu_si512(
        to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
  }

  // ---- products ----

  // y[32][32] = rows of x times a panel, over so many steps; the lower half
  // only where there are rows.
  void Block(const uint8_t* x, int64_t ld_x, const uint8_t* w, int64_t steps,
             int64_t rows, float* y, int64_t ld_y) {
    if (rows > kTileRows) {
      BlockOf<true>(x, ld_x, w, steps, y, ld_y * 4);
    } else {
      BlockOf<false>(x, ld_x, w, steps, y, ld_y * 4);
    }
  }
  template <bool kTwo>
  void BlockOf(const uint8_t* x, int64_t ld_x, const uint8_t* w, int64_t steps,
               float* y, int64_t ld_y) {
    tiles_.template Zero<0>();
    tiles_.template Zero<1>();
    if constexpr (kTwo) {
      tiles_.template Zero<2>();
      tiles_.template Zero<3>();
    }
    const uint8_t* below = x + kTileRows * ld_x;
    for (int64_t i = 0; i < steps; ++i) {
      tiles_.template Load<6>(w, 128);
      tiles_.template Load<4>(x, ld_x);
      tiles_.template DotBf16<0, 4, 6>();
      tiles_.template Load<7>(w + 64, 128);
      tiles_.template DotBf16<1, 4, 7>();
      if constexpr (kTwo) {
        tiles_.template Load<5>(below, ld_x);
        tiles_.template DotBf16<2, 5, 6>();
        tiles_.template DotBf16<3, 5, 7>();
        below += kStepBytes;
      }
      x += kStepBytes;
      w += kPanelStepBytes;
    }
    tiles_.template Store<0>(y, ld_y);
    tiles_.template Store<1>(y + 16, ld_y);
    if constexpr (kTwo) {
      float* under = y + kTileRows * ld_y / 4;
      tiles_.template Store<2>(under, ld_y);
      tiles_.template Store<3>(under + 16, ld_y);
    }
  }

  void Chunk(int64_t row, int64_t rows, int64_t key, int64_t keys) {
    const auto* k = reinterpret_cast<const uint8_t*>(a_.k);
    const int64_t key_panel = Steps(a_.d) * kPanelStepBytes;
    for (int64_t i = 0; i < Steps(keys); ++i) {
      Block(x_, ld_x_, k + (key / kStep + i) * key_panel, Steps(a_.d), rows,
            scores_ + i * kStep, kLdScores);
    }
    bool any = false;
    float greatest[kRows];
    float sum[kRows];
    // In two turns: what rows wait for, others do meanwhile.
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t seen = Smaller(Visible(row + r) - key, keys);
      greatest[r] = seen > 0 ? Greatest(row + r, r, key, seen) : kNothing;
    }
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t seen = Smaller(Visible(row + r) - key, keys);
      sum[r] = Weights(r, seen, Steps(keys), greatest[r]);
      any = any || sum[r] != 0.0f;
    }
    if (!any) return;
    const auto* v =
        reinterpret_cast<const uint8_t*>(a_.v) + key / kStep * kPanelStepBytes;
    for (int64_t i = 0; i < Steps(a_.dv); ++i) {
      Block(weights_, kLdWeights, v + i * Steps(a_.num_keys) * kPanelStepBytes,
            Steps(keys), rows, chunk_ + i * kStep, ld_v_);
    }
    for (int64_t r = 0; r < rows; ++r) {
      if (sum[r] != 0.0f) Merge(r, greatest[r], sum[r]);
    }
  }

  // ---- weights of a row ----

  // Of the `seen` keys that the row sees, then 0 for all of these steps. Gives
  // their sum; 0: the row sees none.
  float Weights(int64_t r, int64_t seen, int64_t steps, float greatest) {
    const float* scores = scores_ + r * kLdScores;
    uint8_t* to = weights_ + r * kLdWeights;
    int64_t done = 0;
    float sum = 0.0f;
    if (greatest != kNothing) {
      const F m = V::Set(greatest);
      F low_sum = V::Zero();
      F high_sum = V::Zero();
      int64_t i = 0;
      for (; i + kStep <= seen; i += kStep) {
        const F low = Weight(V::Sub(V::Load(scores + i), m));
        const F high = Weight(V::Sub(V::Load(scores + i + 16), m));
        low_sum = V::Add(low_sum, low);
        high_sum = V::Add(high_sum, high);
        Round(low, high, to + i * 2);
      }
      if (i < seen) {
        const F low = First(V::First(seen - i), scores + i, m);
        const F high = First(V::First(seen - i - 16), scores + i + 16, m);
        low_sum = V::Add(low_sum, low);
        high_sum = V::Add(high_sum, high);
        Round(low, high, to + i * 2);
        i += kStep;
      }
      done = i;
      sum = Fold(V::Add(low_sum, high_sum),
                 [](F a, F b) { return V::Add(a, b); });
    }
    for (; done < steps * kStep; done += kStep) {
      _mm512_storeu_si512(to + done * 2, _mm512_setzero_si512());
    }
    return sum;
  }
  static F First(V::Mask some, const float* scores, F m) {
    return _mm512_maskz_mov_ps(some, Weight(V::Sub(V::Load(scores), m)));
  }

  // 2^x for x up to 0, within 3e-6 of it, and exactly 1 for 0; 0 where it would
  // be below 2^-126: a CPU takes a hundred times as long over such numbers.
  static F Weight(F x) {
    const V::Mask normal = _mm512_cmp_ps_mask(x, V::Set(-126.0f), _CMP_NLT_UQ);
    const F part = _mm512_maskz_reduce_ps(normal, x, kFloor);
    constexpr float kC[] = {1.0f, 6.93044841e-01f, 2.41280213e-01f,
                            5.22424690e-02f, 1.34266876e-02f};
    return _mm512_maskz_scalef_ps(normal, Math<V>::Polynomial(kC, part), x);
  }
  static constexpr int kFloor = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;

  // Scales the scores and adds the mask to them, both as powers of 2.
  float Greatest(int64_t row, int64_t r, int64_t key, int64_t seen) {
    float* scores = scores_ + r * kLdScores;
    const F scale = V::Set(a_.scale * kLog2E);
    const F turn = V::Set(kLog2E);
    const float* mask =
        a_.mask == nullptr ? nullptr : a_.mask + row * a_.ld_mask + key;
    F m[2] = {V::Set(kNothing), V::Set(kNothing)};
    for (int64_t i = 0; i < seen; i += kStep) {
#pragma GCC unroll 2
      for (int64_t half = 0; half < 2; ++half) {
        const int64_t at = i + 16 * half;
        const V::Mask some = V::First(seen - at);
        F s = V::Mul(V::Load(scores + at), scale);
        if (mask != nullptr) {
          s = V::Fma(_mm512_maskz_loadu_ps(some, mask + at), turn, s);
        }
        V::Store(scores + at, s);
        m[half] = _mm512_mask_max_ps(m[half], some, m[half], s);
      }
    }
    return Fold(V::Max(m[0], m[1]), [](F a, F b) { return V::Max(a, b); });
  }

  // Lanes j + 8 are taken to lanes j, then + 4, + 2, + 1.
  template <class Join>
  static float Fold(F x, Join join) {
    x = join(x, V::Down<8>(x));
    x = join(x, V::Down<4>(x));
    x = join(x, V::Down<2>(x));
    x = join(x, V::Down<1>(x));
    return V::FirstLane(x);
  }

  // ---- results ----

  static float Power(float x) { return V::FirstLane(Weight(V::Set(x))); }

  // Takes a row of the chunk into the total of the chunks before.
  void Merge(int64_t r, float m, float l) {
    const float* chunk = chunk_ + r * ld_v_;
    float* total = total_ + r * ld_v_;
    // What is left of -0 depends on how many hidden keys were multiplied.
    const F zero = V::Zero();
    if (sum_[r] == 0.0f) {
      greatest_[r] = m;
      sum_[r] = l;
      for (int64_t i = 0; i < a_.dv; i += 16) {
        V::Store(total + i, V::Add(V::Load(chunk + i), zero));
      }
      return;
    }
    const float both = greatest_[r] > m ? greatest_[r] : m;
    const float before = Power(greatest_[r] - both);
    const float now = Power(m - both);
    greatest_[r] = both;
    sum_[r] = __builtin_fmaf(sum_[r], before, l * now);
    for (int64_t i = 0; i < a_.dv; i += 16) {
      const F o = V::Mul(V::Add(V::Load(chunk + i), zero), V::Set(now));
      V::Store(total + i, V::Fma(V::Load(total + i), V::Set(before), o));
    }
  }

  void PutRow(int64_t row, int64_t r) const {
    const float* total = total_ + r * ld_v_;
    const bool nothing = sum_[r] == 0.0f;
    const F hidden = V::Set(a_.zero_if_hidden ? 0.0f : __builtin_nanf(""));
    const F factor = V::Set(1.0f / sum_[r]);
    for (int64_t i = 0; i < a_.dv; i += 16) {
      const F v = nothing ? hidden : V::Mul(V::Load(total + i), factor);
      if (a_.out_bf16 != nullptr) {
        const __m256bh rounded = _mm512_cvtneps_pbh(v);
        _mm256_mask_storeu_epi16(a_.out_bf16 + row * a_.ld_out + i,
                                 V::First(a_.dv - i),
                                 reinterpret_cast<__m256i>(rounded));
      } else {
        V::StoreFirst(a_.out + row * a_.ld_out + i, a_.dv - i, v);
      }
    }
  }

  static constexpr int64_t kLdWeights = (kChunk / kStep + 1) * kStepBytes;

  Tiles& tiles_;
  const AttentionArgs& a_;
  const int64_t ld_q_;  // bytes
  const int64_t ld_v_;
  const uint8_t* x_ = nullptr;  // queries of a block, ld_x_ bytes apart
  int64_t ld_x_ = 0;
  uint8_t* q_;        // [kRows][ld_q_] bf16, those that are copied
  uint8_t* weights_;  // [kRows][kLdWeights] bf16
  float* scores_;     // [kRows][kLdScores] of a chunk
  float* chunk_;      // [kRows][ld_v_] weighted values of a chunk
  float* total_;      // [kRows][ld_v_] of all chunks so far
  float greatest_[kRows];
  float sum_[kRows];  // 0: no chunk so far
};

}  // namespace
}  // namespace millrace::models
