// Attention of the rows of a prompt in tiles of bf16: many query rows meet the
// same keys, so two products of matrices with a softmax between them. The chain
// is written in kernels.h. Written over a type `Tiles`, see cpu_tiles.h.
//
//   S = Q K^T    A: 16 rows of q x 32 dims     B: K, pairs of dims x 16 keys
//   O = P V      A: 16 rows of p x 32 keys     B: V, pairs of keys x 16 dims
//
// Pages hold K with 16 keys side by side and V by keys, so both become operand
// B without a transpose, S and O come out by rows, and rows of p are operand A
// as the softmax leaves them.
//
// Keys are walked in runs of 256. The keys and values of a run become bf16
// tiles once for all rows of the call; then 32 rows at a time are scored,
// weighed and summed while their 34 KiB of scores stay in L1. A row keeps the
// greatest score so far, and what it has summed is scaled down when a later run
// exceeds it. Source: online softmax, Milakov and Gimelshein 2018;
// FlashAttention, Dao et al. 2022.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels.h"
#include "models/cpu/kernels/amx/kv_tiles.h"
#include "models/cpu/kernels/amx/tile_config.h"
#include "models/cpu/kernels/avx2/vec8.h"
#include "models/cpu/kernels/avx512vnni/vec16.h"

namespace millrace::models {
namespace {

template <typename Tiles>
class PromptAttention {
 public:
  static int64_t ScratchFloats(int32_t num_rows, int32_t head_dim) {
    const int64_t padded = KvTiles::PaddedDims(head_dim);
    const int64_t halves =
        2 * kRunKeys * padded + PaddedRows(num_rows) * padded;
    return halves / 2 + kBlockRows * (kScoreStride + kStep);
  }

  static void Attend(Tiles& tiles, const AttendArgs& args) {
    PromptAttention work(tiles, args);
    TileConfig config;
    for (int i = 0; i < 8; ++i) config.Shape(i, kTile, 64);
    tiles.Configure(config);
    work.RoundQueries();
    int32_t begin = args.num_keys;
    for (int32_t row = 0; row < args.num_rows; ++row) {
      begin = Least(begin, work.Hidden(row));
    }
    for (int32_t run = begin / kRunKeys * kRunKeys; run < args.num_keys;
         run += kRunKeys) {
      work.Run(run, begin);
    }
    tiles.Release();
  }

 private:
  static constexpr int32_t kRunKeys = KvTiles::kRunKeys;
  static constexpr int32_t kStep = KvTiles::kStep;
  static constexpr int32_t kTileSize = KvTiles::kTileSize;
  static constexpr int32_t kTile = 16;  // rows of a tile
  static constexpr int32_t kBlockRows = 32;
  static constexpr float kLog2e = 1.44269504f;
  // Floats between rows of scores; not a power of two, which would put the rows
  // of a tile into few sets of L1.
  static constexpr int64_t kScoreStride = kRunKeys + 16;

  // What a block of rows has in a run.
  struct Block {
    int32_t first_row;
    int32_t num_rows;
    Range steps;  // of 32 keys, that any of its rows sees
    // Of each row:
    bool sees[kBlockRows];    // keys of this run
    bool starts[kBlockRows];  // and these are its first
    float shift[kBlockRows];  // added to scores times log2(e)
    float carry[kBlockRows];  // multiplies its sums of earlier runs
  };

  PromptAttention(Tiles& tiles, const AttendArgs& args)
      : tiles_(tiles),
        args_(args),
        padded_(KvTiles::PaddedDims(args.head_dim)) {
    keys_ = reinterpret_cast<uint16_t*>(args.scratch);
    values_ = keys_ + kRunKeys * padded_;
    queries_ = values_ + kRunKeys * padded_;
    scores_ = reinterpret_cast<float*>(queries_ +
                                       PaddedRows(args.num_rows) * padded_);
    sums_ = scores_ + kBlockRows * kScoreStride;
  }

  static int32_t Least(int32_t a, int32_t b) { return a < b ? a : b; }
  static int32_t Greatest(int32_t a, int32_t b) { return a > b ? a : b; }
  // Rows filled up to whole tiles.
  static int64_t PaddedRows(int32_t num_rows) {
    return (int64_t{num_rows} + kTile - 1) / kTile * kTile;
  }
  int32_t Hidden(int32_t row) const {
    return args_.hidden != nullptr ? args_.hidden[row] : 0;
  }
  // The keys of the run that a row sees; none where end <= begin.
  Range Seen(int32_t row, int32_t run) const {
    return {Greatest(Hidden(row) - run, 0),
            Least(args_.visible[row] - run, kRunKeys)};
  }
  static Range StepsOf(Range keys) {
    return {keys.begin / kStep, (keys.end + kStep - 1) / kStep};
  }
  static Range WholeStepsOf(Range keys) {
    return {(keys.begin + kStep - 1) / kStep, keys.end / kStep};
  }

  // ---- operands ----

  // Rows of q as bf16; what fills up dims and the last tile is 0.
  void RoundQueries() {
    for (int32_t row = 0; row < PaddedRows(args_.num_rows); ++row) {
      const float* from = args_.q + row * args_.q_stride;
      uint16_t* to = queries_ + row * padded_;
      const int32_t dims = row < args_.num_rows ? args_.head_dim : 0;
      for (int32_t d = 0; d < padded_; d += kStep, to += kStep) {
        const __m512 low =
            d < dims ? _mm512_loadu_ps(from + d) : _mm512_setzero_ps();
        const __m512 high = d + 16 < dims ? _mm512_loadu_ps(from + d + 16)
                                          : _mm512_setzero_ps();
        _mm512_store_si512(
            to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
      }
    }
  }

  // ---- products ----

  // Scores of a block against the steps of keys that it sees. C is tiles 0 to
  // 3, A 4 and 5, B 6 and 7; a block of up to 16 rows has one tile of rows.
  template <bool kTwo>
  void Score(const Block& block) {
    const uint16_t* q = queries_ + block.first_row * padded_;
    const int64_t q_bytes = padded_ * 2;
    const uint16_t* k = keys_ + block.steps.begin * kStep * padded_;
    for (int32_t step = block.steps.begin; step < block.steps.end; ++step) {
      tiles_.template Zero<0>();
      tiles_.template Zero<1>();
      if constexpr (kTwo) tiles_.template Zero<2>();
      if constexpr (kTwo) tiles_.template Zero<3>();
      for (int64_t d = 0; d < padded_; d += kStep, k += 2 * kTileSize) {
        tiles_.template Load<4>(q + d, q_bytes);
        tiles_.template LoadStreamed<6>(k, 64);
        tiles_.template DotBf16<0, 4, 6>();
        tiles_.template LoadStreamed<7>(k + kTileSize, 64);
        tiles_.template DotBf16<1, 4, 7>();
        if constexpr (kTwo) {
          tiles_.template Load<5>(q + kTile * padded_ + d, q_bytes);
          tiles_.template DotBf16<2, 5, 6>();
          tiles_.template DotBf16<3, 5, 7>();
        }
      }
      Store<kTwo>(scores_ + step * kStep, kScoreStride);
    }
  }

  // o = o * carry + P V.
  template <bool kTwo>
  void Sum(const Block& block) {
    constexpr int64_t kStride = kScoreStride * sizeof(float);
    const auto* p = reinterpret_cast<const uint16_t*>(scores_);
    for (int64_t dim = 0; dim < padded_; dim += kStep) {
      const uint16_t* v =
          values_ + dim * kRunKeys + block.steps.begin * 2 * kTileSize;
      tiles_.template Zero<0>();
      tiles_.template Zero<1>();
      if constexpr (kTwo) tiles_.template Zero<2>();
      if constexpr (kTwo) tiles_.template Zero<3>();
      for (int32_t step = block.steps.begin; step < block.steps.end;
           ++step, v += 2 * kTileSize) {
        tiles_.template Load<4>(p + step * kStep, kStride);
        tiles_.template LoadStreamed<6>(v, 64);
        tiles_.template DotBf16<0, 4, 6>();
        tiles_.template LoadStreamed<7>(v + kTileSize, 64);
        tiles_.template DotBf16<1, 4, 7>();
        if constexpr (kTwo) {
          tiles_.template Load<5>(p + 2 * kTile * kScoreStride + step * kStep,
                                  kStride);
          tiles_.template DotBf16<2, 5, 6>();
          tiles_.template DotBf16<3, 5, 7>();
        }
      }
      Store<kTwo>(sums_, kStep);
      AddSums(block, dim);
    }
  }

  // Tiles 0 to 3 to 16 or 32 rows of 32 floats.
  template <bool kTwo>
  void Store(float* to, int64_t stride) {
    const int64_t bytes = stride * 4;
    tiles_.template Store<0>(to, bytes);
    tiles_.template Store<1>(to + kTile, bytes);
    if constexpr (kTwo) {
      tiles_.template Store<2>(to + kTile * stride, bytes);
      tiles_.template Store<3>(to + kTile * stride + kTile, bytes);
    }
  }

  void AddSums(const Block& block, int64_t dim) {
    for (int32_t i = 0; i < block.num_rows; ++i) {
      if (!block.sees[i]) continue;
      float* o = args_.o + (block.first_row + i) * args_.o_stride + dim;
      const __m512 carry = _mm512_set1_ps(block.carry[i]);
      for (int64_t d = 0; d < kStep && dim + d < args_.head_dim; d += 16) {
        __m512 sum = _mm512_load_ps(sums_ + i * kStep + d);
        if (!block.starts[i]) {
          sum = _mm512_fmadd_ps(_mm512_loadu_ps(o + d), carry, sum);
        }
        _mm512_storeu_ps(o + d, sum);
      }
    }
  }

  // ---- softmax ----

  // 2^x for x <= 0, within 1e-4 of it; 0 below -100. A NaN stays one.
  static __m512 Exp2(__m512 x) {
    const __mmask16 keep =
        _mm512_cmp_ps_mask(x, _mm512_set1_ps(-100.0f), _CMP_NLT_UQ);
    constexpr int kFloor = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
    const __m512 r = _mm512_reduce_ps(x, kFloor);  // x - floor(x)
    __m512 p = _mm512_set1_ps(7.8024521e-2f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.2606716e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.9583354e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.9992522e-1f));
    return _mm512_maskz_scalef_ps(keep, p, x);
  }

  // Which of the 32 keys from `key` on lie in the range.
  static uint32_t Mask(Range keys, int32_t key) {
    const auto below = [key](int32_t end) {
      const int32_t n = Greatest(0, Least(end - key, kStep));
      return (uint64_t{1} << n) - 1;
    };
    return static_cast<uint32_t>(below(keys.end) & ~below(keys.begin));
  }
  static __mmask16 Low(uint32_t mask) { return static_cast<__mmask16>(mask); }
  static __mmask16 High(uint32_t mask) {
    return static_cast<__mmask16>(mask >> 16);
  }

  // cap * tanh(s / cap)
  static void SoftCap(float* s, float cap, Range steps) {
    const __m512 one = _mm512_set1_ps(1.0f);
    for (int32_t k = steps.begin * kStep; k < steps.end * kStep; k += 16) {
      const __m512 e = Exp16(
          _mm512_mul_ps(_mm512_load_ps(s + k), _mm512_set1_ps(2.0f / cap)));
      const __m512 t = _mm512_sub_ps(
          one, _mm512_div_ps(_mm512_set1_ps(2.0f), _mm512_add_ps(e, one)));
      _mm512_store_ps(s + k, _mm512_mul_ps(t, _mm512_set1_ps(cap)));
    }
  }

  // The greatest score of row i of a block, earlier runs included, and what the
  // row's sums so far are to be multiplied by.
  void FindGreatest(Block& block, int32_t i, Range seen) {
    const int32_t row = block.first_row + i;
    float* s = scores_ + i * kScoreStride;
    const Range steps = StepsOf(seen);
    const Range whole = WholeStepsOf(seen);
    if (args_.softcap > 0) SoftCap(s, args_.softcap, steps);
    const float before = block.starts[i] ? -__builtin_inff() : args_.m[row];
    __m512 m0 = _mm512_set1_ps(before);
    __m512 m1 = m0;
    for (int32_t t = steps.begin; t < steps.end; ++t) {
      const __m512 low = _mm512_load_ps(s + t * kStep);
      const __m512 high = _mm512_load_ps(s + t * kStep + 16);
      if (t >= whole.begin && t < whole.end) {
        m0 = _mm512_max_ps(low, m0);
        m1 = _mm512_max_ps(high, m1);
      } else {
        const uint32_t mask = Mask(seen, t * kStep);
        m0 = _mm512_mask_max_ps(m0, Low(mask), low, m0);
        m1 = _mm512_mask_max_ps(m1, High(mask), high, m1);
      }
    }
    m0 = _mm512_max_ps(m0, m1);
    const float m = LaneMax8(_mm256_max_ps(_mm512_castps512_ps256(m0),
                                           _mm512_extractf32x8_ps(m0, 1)));
    block.shift[i] = -(m * kLog2e);
    block.carry[i] = _mm512_cvtss_f32(
        Exp2(_mm512_set1_ps(__builtin_fmaf(before, kLog2e, block.shift[i]))));
    args_.m[row] = m;
  }

  // Scores of row i become weights in bf16, in the same place.
  void Weigh(const Block& block, int32_t i, Range seen) {
    const int32_t row = block.first_row + i;
    const float* s = scores_ + i * kScoreStride;
    auto* p = reinterpret_cast<uint16_t*>(scores_ + i * kScoreStride);
    const Range steps = StepsOf(seen);
    const Range whole = WholeStepsOf(seen);
    const __m512 shift = _mm512_set1_ps(block.shift[i]);
    const auto weight = [&](const float* score) {
      return Exp2(_mm512_fmadd_ps(_mm512_load_ps(score), _mm512_set1_ps(kLog2e),
                                  shift));
    };
    __m512 even = _mm512_setzero_ps();
    __m512 odd = even;
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
    ClearSteps(p, block.steps.begin, steps.begin);
    for (int32_t t = steps.begin; t < steps.end; ++t) {
      __m512 low = weight(s + t * kStep);
      __m512 high = weight(s + t * kStep + 16);
      if (t < whole.begin || t >= whole.end) {
        const uint32_t mask = Mask(seen, t * kStep);
        low = _mm512_maskz_mov_ps(Low(mask), low);
        high = _mm512_maskz_mov_ps(High(mask), high);
      }
      const auto rounded =
          reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
      _mm512_store_si512(p + t * kStep, rounded);
      even = _mm512_add_ps(even,
                           _mm512_castsi512_ps(_mm512_slli_epi32(rounded, 16)));
      odd = _mm512_add_ps(
          odd, _mm512_castsi512_ps(_mm512_and_si512(rounded, upper)));
    }
    ClearSteps(p, steps.end, block.steps.end);
    even = _mm512_add_ps(even, odd);
    const float l = LaneSum8(_mm256_add_ps(_mm512_castps512_ps256(even),
                                           _mm512_extractf32x8_ps(even, 1)));
    args_.l[row] =
        block.starts[i] ? l : __builtin_fmaf(args_.l[row], block.carry[i], l);
  }

  static void ClearSteps(uint16_t* p, int32_t begin, int32_t end) {
    for (int32_t t = begin; t < end; ++t) {
      _mm512_store_si512(p + t * kStep, _mm512_setzero_si512());
    }
  }

  // ---- walk ----

  // All rows over the keys of one run; no row sees a key before `begin`.
  void Run(int32_t run, int32_t begin) {
    KvTiles(args_).Pack(run,
                        StepsOf({Greatest(begin - run, 0),
                                 Least(args_.num_keys - run, kRunKeys)}),
                        keys_, values_);
    for (int32_t row = 0; row < args_.num_rows; row += kBlockRows) {
      Block block;
      block.first_row = row;
      block.num_rows = Least(kBlockRows, args_.num_rows - row);
      Range keys{kRunKeys, 0};
      for (int32_t i = 0; i < block.num_rows; ++i) {
        const Range seen = Seen(row + i, run);
        block.sees[i] = seen.begin < seen.end;
        block.starts[i] = Hidden(row + i) >= run;
        if (!block.sees[i]) continue;
        keys.begin = Least(keys.begin, seen.begin);
        keys.end = Greatest(keys.end, seen.end);
      }
      if (keys.begin >= keys.end) continue;
      block.steps = StepsOf(keys);
      if (block.num_rows > kTile) {
        RunBlock<true>(block, run);
      } else {
        RunBlock<false>(block, run);
      }
    }
  }

  template <bool kTwo>
  void RunBlock(Block& block, int32_t run) {
    Score<kTwo>(block);
    for (int32_t i = 0; i < block.num_rows; ++i) {
      if (block.sees[i]) FindGreatest(block, i, Seen(block.first_row + i, run));
    }
    for (int32_t i = 0; i < block.num_rows; ++i) {
      if (block.sees[i]) {
        Weigh(block, i, Seen(block.first_row + i, run));
      } else {
        ClearSteps(reinterpret_cast<uint16_t*>(scores_ + i * kScoreStride),
                   block.steps.begin, block.steps.end);
      }
    }
    Sum<kTwo>(block);
  }

  Tiles& tiles_;
  const AttendArgs& args_;
  const int64_t padded_;  // dims
  // Parts of the scratch.
  uint16_t* keys_;
  uint16_t* values_;
  uint16_t* queries_;  // [rows][padded_]
  // [kBlockRows][kScoreStride], in which rows of p replace those of s.
  float* scores_;
  float* sums_;  // [kBlockRows][32 dims]
};

}  // namespace
}  // namespace millrace::models
