// y = W x of NEON, for neon, neondot and neoni8mm: every column is a vector of
// 8 rows. Integer weights are signed bytes here, whatever they are in the file,
// and meet the signed bytes of the activations; all of that is exact, so the
// bits are those of any table. Anonymous namespace.
#pragma once

#include "models/cpu/kernels/neon/codes.h"
#include "models/cpu/kernels/neon/dot_two.h"
#include "models/cpu/kernels/neon/scales.h"

namespace millrace::models {
namespace {

// One call of a linear function.
struct Work {
  const PackedMatrix& w;
  const ActRows& act;
  float* y;
  int64_t ld_y;

  const uint8_t* Group(int64_t g) const {
    return static_cast<const uint8_t*>(w.data) + g * w.group_bytes;
  }
  // The outputs of a group for a token; the last group may be partial.
  void Store(int64_t token, int64_t g, Floats8 v) const {
    Neon8::StoreFirst(y + token * ld_y + g * 8, w.n - g * 8, v);
  }
};

using TileOf = void (*)(const Work&, int64_t g, int64_t token);
constexpr int kMaxTokens = 4;  // of a tile

// ---- float weights ----

template <WeightFormat kFormat>
inline Floats8 LoadColumn(const uint8_t* p) {
  if constexpr (kFormat == WeightFormat::kF32) {
    return Neon8::Load(reinterpret_cast<const float*>(p));
  } else {
    const uint16x8_t x = vreinterpretq_u16_u8(vld1q_u8(p));
    if constexpr (kFormat == WeightFormat::kF16) return Neon8::OfHalves(x);
    return Neon8::OfBits(
        {vshll_n_u16(vget_low_u16(x), 16), vshll_high_n_u16(x, 16)});
  }
}

// kTokens tokens x 8 rows, the four strands of k mod 4 one after the other in
// registers.
template <WeightFormat kFormat, int kTokens>
void FloatTile(const Work& work, int64_t g, int64_t token) {
  using V = Neon8;
  constexpr int64_t kColumn = Pack8::BlockBytes(kFormat);
  const float* x = work.act.f32 + token * work.act.ld_f32;
  const uint8_t* w = work.Group(g);
  Floats8 acc[kTokens][4];
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) acc[t][j] = V::Zero();
  }
  const auto column = [&](int64_t k, int j) {
    const Floats8 v = LoadColumn<kFormat>(w + k * kColumn);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      acc[t][j] = V::Fma(v, V::Set(x[t * work.act.ld_f32 + k]), acc[t][j]);
    }
  };
  int64_t k = 0;
  for (; k + 4 <= work.w.k; k += 4) {
    column(k, 0);
    column(k + 1, 1);
    column(k + 2, 2);
    column(k + 3, 3);
  }
  if (k < work.w.k) column(k, 0);
  if (k + 1 < work.w.k) column(k + 1, 1);
  if (k + 2 < work.w.k) column(k + 2, 2);
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
    work.Store(
        token + t, g,
        V::Add(V::Add(acc[t][0], acc[t][1]), V::Add(acc[t][2], acc[t][3])));
  }
}

// ---- integer weights ----

// A part's sum from those of its halves.
template <WeightFormat kFormat>
[[gnu::always_inline]] inline Words8 JoinHalves(Words8 low, Words8 high,
                                                const PartScales& s) {
  if constexpr (kHalves<kFormat>) {
    low = Neon8::MulInts(low, s.scale[0]);
    high = Neon8::MulInts(high, s.scale[1]);
  }
  return Neon8::AddInts(low, high);
}

// Σ w x of a part, by half's scale.
template <WeightFormat kFormat>
[[gnu::always_inline]] inline Words8 Dot(const Bytes8x4 w[8],
                                         const PartScales& s, const int8_t* q) {
  using V = Neon8;
  Words8 half[2] = {V::SetBits(0), V::SetBits(0)};
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      half[h] = DotFours(half[h], w[4 * h + j], Broadcast4(q + 16 * h + 4 * j));
    }
  }
  return JoinHalves<kFormat>(half[0], half[1], s);
}

// The chain's next link, or two; `at` is the block of the token's activations.
template <WeightFormat kFormat>
[[gnu::always_inline]] inline Floats8 AddSum(Floats8 acc, Words8 isum,
                                             const PartScales& s,
                                             const ActRows& act, int64_t at) {
  using V = Neon8;
  const Floats8 dx = V::Set(act.d[at]);
  acc = V::Fma(V::ToFloat(isum), V::Mul(s.d, dx), acc);
  if constexpr (HasMin(kFormat)) acc = V::Fma(s.m, V::Set(act.s[at]), acc);
  if constexpr (kFormat == WeightFormat::kQ2_K) {
    const auto half = [&](int h) {
      return V::SetBits(static_cast<uint32_t>(act.half[2 * at + h]));
    };
    const Words8 imin = V::AddInts(V::MulInts(s.min[0], half(0)),
                                   V::MulInts(s.min[1], half(1)));
    acc = V::FmaLess(V::ToFloat(imin), V::Mul(s.m, dx), acc);
  }
  return acc;
}

// acc of kTokens tokens and the next part of eight rows.
template <WeightFormat kFormat, int kTokens>
[[gnu::always_inline]] inline void AddPart(const Work& work, int64_t token,
                                           int64_t block,
                                           const Bytes8x4 weights[8],
                                           const PartScales& s,
                                           Floats8 (&acc)[kTokens]) {
  const ActRows& act = work.act;
  const auto row = [&](int t) {
    return act.q + (token + t) * act.ld_q + block * 32;
  };
  const auto add = [&](int t, Words8 sum) {
    const int64_t at = (token + t) * act.ld_block + block;
    acc[t] = AddSum<kFormat>(acc[t], sum, s, act, at);
  };
  int t = 0;
#if defined(__ARM_FEATURE_MATMUL_INT8)
  if constexpr (kTokens >= 2) {
    const RowPairs low(weights);
    const RowPairs high(weights + 4);
#pragma GCC unroll 2
    for (; t + 2 <= kTokens; t += 2) {
      const int8_t* const q[2] = {row(t), row(t + 1)};
      const int8_t* const behind[2] = {q[0] + 16, q[1] + 16};
      Words8 sums[2][2];
      low.Dot(q, sums[0]);
      high.Dot(behind, sums[1]);
      add(t, JoinHalves<kFormat>(sums[0][0], sums[1][0], s));
      add(t + 1, JoinHalves<kFormat>(sums[0][1], sums[1][1], s));
    }
  }
#endif
#pragma GCC unroll 4
  for (; t < kTokens; ++t) add(t, Dot<kFormat>(weights, s, row(t)));
}

// kTokens tokens x 8 rows over all blocks.
template <WeightFormat kFormat, int kTokens>
void IntegerTile(const Work& work, int64_t g, int64_t token) {
  constexpr int64_t kPart = Pack8::QuantBytes(kFormat);
  constexpr int64_t kPartsAt = Pack8::PartsAt(kFormat);
  constexpr int64_t kBlock = Pack8::BlockBytes(kFormat);
  const uint8_t* w = work.Group(g);
  const int64_t blocks = work.w.k / (32 * kParts<kFormat>);
  Floats8 acc[kTokens];
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) acc[t] = Neon8::Zero();
  for (int64_t b = 0; b < blocks; ++b, w += kBlock) {
    PartScales scales[kParts<kFormat>];
    ReadHeader<kFormat>(w, scales);
    const uint8_t* part = w + kPartsAt;
#pragma GCC unroll 1
    for (int i = 0; i < kParts<kFormat>; ++i, part += kPart) {
      Bytes8x4 weights[8];
      UnpackWeights<kFormat>(part, weights);
      AddPart<kFormat>(work, token, b * kParts<kFormat> + i, weights, scales[i],
                       acc);
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) work.Store(token + t, g, acc[t]);
}

// Entry i takes i + 1 tokens.
template <WeightFormat kFormat>
constexpr TileOf kFloatTiles[kMaxTokens] = {
    FloatTile<kFormat, 1>, FloatTile<kFormat, 2>, FloatTile<kFormat, 3>,
    FloatTile<kFormat, 4>};
template <WeightFormat kFormat>
constexpr TileOf kIntegerTiles[kMaxTokens] = {
    IntegerTile<kFormat, 1>, IntegerTile<kFormat, 2>, IntegerTile<kFormat, 3>,
    IntegerTile<kFormat, 4>};

inline const TileOf* TilesOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return kFloatTiles<WeightFormat::kF32>;
    case WeightFormat::kF16:
      return kFloatTiles<WeightFormat::kF16>;
    case WeightFormat::kBF16:
      return kFloatTiles<WeightFormat::kBF16>;
    case WeightFormat::kQ8_0:
      return kIntegerTiles<WeightFormat::kQ8_0>;
    case WeightFormat::kQ4_0:
      return kIntegerTiles<WeightFormat::kQ4_0>;
    case WeightFormat::kQ4_1:
      return kIntegerTiles<WeightFormat::kQ4_1>;
    case WeightFormat::kQ5_0:
      return kIntegerTiles<WeightFormat::kQ5_0>;
    case WeightFormat::kQ5_1:
      return kIntegerTiles<WeightFormat::kQ5_1>;
    case WeightFormat::kQ2_K:
      return kIntegerTiles<WeightFormat::kQ2_K>;
    case WeightFormat::kQ3_K:
      return kIntegerTiles<WeightFormat::kQ3_K>;
    case WeightFormat::kQ4_K:
      return kIntegerTiles<WeightFormat::kQ4_K>;
    case WeightFormat::kQ5_K:
      return kIntegerTiles<WeightFormat::kQ5_K>;
    case WeightFormat::kQ6_K:
      return kIntegerTiles<WeightFormat::kQ6_K>;
    case WeightFormat::kIQ4_NL:
      return kIntegerTiles<WeightFormat::kIQ4_NL>;
    case WeightFormat::kIQ4_XS:
      return kIntegerTiles<WeightFormat::kIQ4_XS>;
    case WeightFormat::kMXFP4:
      return kIntegerTiles<WeightFormat::kMXFP4>;
  }
  return nullptr;
}

// Outside in: token tile, row group.
inline void RunTiles(const Work& work, int64_t group_begin, int64_t group_end,
                     int64_t num_rows) {
  const TileOf* tiles = TilesOf(work.w.format);
  for (int64_t token = 0; token < num_rows; token += kMaxTokens) {
    const int64_t left = num_rows - token;
    const TileOf tile = tiles[(left < kMaxTokens ? left : kMaxTokens) - 1];
    for (int64_t g = group_begin; g < group_end; ++g) tile(work, g, token);
  }
}

}  // namespace
}  // namespace millrace::models
