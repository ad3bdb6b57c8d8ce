// y = W x for integer weights in int8 tiles, for 32 tokens and more; the chain
// and the bits of llm_kernels.h. Over a type `Tiles` as cpu_tiles.h.
//
// Codes of one group are unpacked once for all tokens, a run of 16 blocks of 32
// columns at a time. For 16 tokens, products of all blocks of the run are
// stored as integers, and the float chain follows in AVX-512. The two do not
// run beside each other: next to tile products the CPU has one 512-bit FMA a
// clock instead of two.
#pragma once

#include "models/cpu/kernels/amx/tile_config.h"
#include "models/cpu/kernels/avx512vnni/scales.h"

namespace millrace::models {
namespace {

// Integer sums of a block: of its 32 columns, or of each half.
template <WeightFormat kFormat>
constexpr int kSumsOf = HasHalves(kFormat) ? 2 : 1;

// A run of blocks of one group, unpacked: 16 sums of tokens x rows in all.
template <WeightFormat kFormat>
struct UnpackedRun {
  static constexpr int kMaxBlocks = 16 / kSumsOf<kFormat>;

  int num_blocks;
  alignas(64) int8_t codes[kMaxBlocks][8 * 64];  // signed, columns in fours
  alignas(64) float d[kMaxBlocks][16];
  alignas(64) float m[HasMin(kFormat) ? kMaxBlocks : 1][16];
  // Of halves.
  alignas(64) float scales[HasHalves(kFormat) ? kMaxBlocks : 1][2][16];

  // `p` is the first of whole blocks of the file's format.
  void Unpack(const uint8_t* p, int blocks) {
    constexpr int64_t kBlock = Pack16::BlockBytes(kFormat);
    constexpr int64_t kPartShare = kBlock / kParts<kFormat>;
    num_blocks = blocks;
    for (int b = 0; b < blocks; p += kBlock) {
      ScalesOf<kFormat> all;
      Load(p, all);
      const uint8_t* part = p + Pack16::PartsAt(kFormat);
#pragma GCC unroll 1
      for (int i = 0; i < kParts<kFormat>; ++i, ++b) {
        for (int64_t line = 0; line < kPartShare; line += 64) {
          Prefetch(p + kAhead + i * kPartShare + line);
        }
        __m512i u[8];
        UnpackCodes<kFormat>(part, u);
        const __m512i shift =
            _mm512_set1_epi8(static_cast<char>(kShift<kFormat>));
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
          _mm512_store_si512(codes[b] + 64 * j, _mm512_sub_epi8(u[j], shift));
        }
        Keep(all, i, b);
        part += Pack16::QuantBytes(kFormat);
      }
    }
  }

 private:
  void Keep(const Scales16<kFormat>& all, int part, int b) {
    _mm512_store_ps(d[b], all.d[part]);
    if constexpr (HasMin(kFormat)) _mm512_store_ps(m[b], all.m[part]);
  }
  void Keep(const HalfScales16<kFormat>& all, int part, int b) {
    const __m512i pair = all.Pair(all.words, part);
    const __m512i low = _mm512_srai_epi32(_mm512_slli_epi32(pair, 16), 16);
    _mm512_store_ps(scales[b][0], _mm512_cvtepi32_ps(low));
    _mm512_store_ps(scales[b][1],
                    _mm512_cvtepi32_ps(_mm512_srai_epi32(pair, 16)));
    _mm512_store_ps(d[b], all.d);
  }
};

// One sum of 16 tokens x 16 rows: tile C is kTile, A kTile + 2, B kTile + 4.
template <int kTile, typename Tiles>
inline void Sum16x16(Tiles& tiles, const int8_t* q, int64_t ld_q,
                     const int8_t* codes, int32_t* sums) {
  tiles.template Zero<kTile>();
  tiles.template Load<kTile + 2>(q, ld_q);
  tiles.template Load<kTile + 4>(codes, 64);
  tiles.template DotSignedSigned<kTile, kTile + 2, kTile + 4>();
  tiles.template Store<kTile>(sums, 64);
}

template <WeightFormat kFormat, typename Tiles>
class IntegerLinear {
 public:
  IntegerLinear(Tiles& tiles, const PackedMatrix& w, const ActRows& act,
                float* y, int64_t ld_y)
      : tiles_(tiles), w_(w), act_(act), y_(y), ld_y_(ld_y) {}

  // `tokens` is a multiple of 16.
  void Run(int64_t group_begin, int64_t group_end, int64_t tokens) {
    TileConfig config;
    config.Shape(0, 16, 64);
    config.Shape(1, 16, 64);
    config.Shape(2, 16, kSumColumns);
    config.Shape(3, 16, kSumColumns);
    config.Shape(4, kSumColumns / 4, 64);
    config.Shape(5, kSumColumns / 4, 64);
    tiles_.Configure(config);
    const int64_t num_blocks = w_.k / 32;
    for (int64_t g = group_begin; g < group_end; ++g) {
      const auto* group =
          static_cast<const uint8_t*>(w_.data) + g * w_.group_bytes;
      const auto live = static_cast<__mmask16>(
          w_.n - g * 16 >= 16 ? 0xffffu : (1u << (w_.n - g * 16)) - 1);
      for (int64_t block = 0; block < num_blocks; block += kMaxBlocks) {
        const int64_t left = num_blocks - block;
        run_.Unpack(
            group + block / kParts<kFormat> * Pack16::BlockBytes(kFormat),
            static_cast<int>(left < kMaxBlocks ? left : kMaxBlocks));
        for (int64_t token = 0; token < tokens; token += 16) {
          SumRun(token, block);
          AddRun(token, block, live, y_ + token * ld_y_ + g * 16);
        }
      }
    }
    tiles_.Release();
  }

 private:
  static constexpr int kMaxBlocks = UnpackedRun<kFormat>::kMaxBlocks;

  static constexpr int kSumColumns = 32 / kSumsOf<kFormat>;

  void SumRun(int64_t token, int64_t block) {
    constexpr int kCodes = 16 * kSumColumns;
    const int8_t* q = act_.q + token * act_.ld_q + block * 32;
    const int8_t* codes = run_.codes[0];
    const int num_sums = run_.num_blocks * kSumsOf<kFormat>;
    int i = 0;
    for (; i + 2 <= num_sums; i += 2) {
      Sum16x16<0>(tiles_, q + i * kSumColumns, act_.ld_q, codes + i * kCodes,
                  sums_[i][0]);
      Sum16x16<1>(tiles_, q + (i + 1) * kSumColumns, act_.ld_q,
                  codes + (i + 1) * kCodes, sums_[i + 1][0]);
    }
    if (i < num_sums) {
      Sum16x16<0>(tiles_, q + i * kSumColumns, act_.ld_q, codes + i * kCodes,
                  sums_[i][0]);
    }
  }

  // The chain of llm_kernels.h over the run; earlier runs' results stand in y.
  void AddRun(int64_t token, int64_t block, __mmask16 live, float* y) const {
    __m512 acc[16];
#pragma GCC unroll 16
    for (int t = 0; t < 16; ++t) {
      acc[t] = block == 0 ? _mm512_setzero_ps()
                          : _mm512_maskz_loadu_ps(live, y + t * ld_y_);
    }
    for (int b = 0; b < run_.num_blocks; ++b) {
      const int64_t at = token * act_.ld_block + block + b;
#pragma GCC unroll 16
      for (int t = 0; t < 16; ++t) {
        acc[t] = AddBlock(acc[t], b, t, at + t * act_.ld_block);
      }
    }
#pragma GCC unroll 16
    for (int t = 0; t < 16; ++t) {
      _mm512_mask_storeu_ps(y + t * ld_y_, live, acc[t]);
    }
  }

  // Block b of the run, for token t; `at` is the place of its scales.
  __m512 AddBlock(__m512 acc, int b, int t, int64_t at) const {
    const __m512 d = _mm512_load_ps(run_.d[b]);
    const __m512 dx = _mm512_set1_ps(act_.d[at]);
    if constexpr (HasHalves(kFormat)) {
      // Exact: these integers stay below 2^24.
      const __m512 isum = _mm512_fmadd_ps(
          SumOf(2 * b + 1, t), _mm512_load_ps(run_.scales[b][1]),
          _mm512_mul_ps(SumOf(2 * b, t), _mm512_load_ps(run_.scales[b][0])));
      return _mm512_fmadd_ps(isum, _mm512_mul_ps(d, dx), acc);
    }
    acc = _mm512_fmadd_ps(SumOf(b, t), _mm512_mul_ps(d, dx), acc);
    if constexpr (HasMin(kFormat)) {
      acc = _mm512_fmadd_ps(_mm512_load_ps(run_.m[b]),
                            _mm512_set1_ps(act_.s[at]), acc);
    }
    return acc;
  }
  __m512 SumOf(int i, int t) const {
    return _mm512_cvtepi32_ps(_mm512_load_si512(sums_[i][t]));
  }

  Tiles& tiles_;
  const PackedMatrix& w_;
  const ActRows& act_;
  float* const y_;
  const int64_t ld_y_;
  UnpackedRun<kFormat> run_;
  alignas(64) int32_t sums_[kMaxBlocks * kSumsOf<kFormat>][16][16];
};

template <WeightFormat kFormat, typename Tiles>
void RunIntegerLinear(Tiles& tiles, const PackedMatrix& w, int64_t group_begin,
                      int64_t group_end, const ActRows& act, int64_t tokens,
                      float* y, int64_t ld_y) {
  IntegerLinear<kFormat, Tiles>(tiles, w, act, y, ld_y)
      .Run(group_begin, group_end, tokens);
}

// The rows from `first` on.
inline ActRows Q8RowsFrom(const ActRows& act, int64_t first) {
  ActRows rest = act;
  rest.q += first * act.ld_q;
  rest.d += first * act.ld_block;
  rest.s += first * act.ld_block;
  rest.sum += first * act.ld_block;
  rest.half += 2 * first * act.ld_block;
  return rest;
}

}  // namespace
}  // namespace millrace::models
