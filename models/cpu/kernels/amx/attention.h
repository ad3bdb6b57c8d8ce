// Attention of the rows of a prompt in tiles of bf16: many query rows meet the
// same keys, so two products of matrices with a softmax between them. The chain
// is written in llm_kernels.h. Written over a type `Tiles`, see cpu_tiles.h.
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
// weighed and summed while their 34 KiB of scores stay in L1. Source:
// FlashAttention, Dao et al. 2022.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/amx/kv_tiles.h"
#include "models/cpu/kernels/amx/prompt_softmax.h"
#include "models/cpu/kernels/amx/tile_config.h"
#include "models/cpu/llm_kernels.h"

namespace millrace::models {
namespace {

template <typename Tiles>
class PromptAttention {
 public:
  static int64_t ScratchFloats(int32_t num_rows, int32_t head_dim) {
    const int64_t padded = KvTiles::PaddedDims(head_dim);
    const int64_t halves =
        2 * kRunKeys * padded + PaddedRows(num_rows) * padded;
    return halves / 2 + RowBlock::kRows * (RowBlock::kStride + kStep);
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

  PromptAttention(Tiles& tiles, const AttendArgs& args)
      : tiles_(tiles),
        args_(args),
        padded_(KvTiles::PaddedDims(args.head_dim)) {
    keys_ = reinterpret_cast<uint16_t*>(args.scratch);
    values_ = keys_ + kRunKeys * padded_;
    queries_ = values_ + kRunKeys * padded_;
    scores_ = reinterpret_cast<float*>(queries_ +
                                       PaddedRows(args.num_rows) * padded_);
    sums_ = scores_ + RowBlock::kRows * RowBlock::kStride;
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
  static Range StepsOf(Range keys) {
    return {keys.begin / kStep, (keys.end + kStep - 1) / kStep};
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
  void Score(const RowBlock& block) {
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
      Store<kTwo>(scores_ + step * kStep, RowBlock::kStride);
    }
  }

  // o = o * carry + P V.
  template <bool kTwo>
  void Sum(const RowBlock& block) {
    constexpr int64_t kStride = RowBlock::kStride * sizeof(float);
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
          tiles_.template Load<5>(
              p + 2 * kTile * RowBlock::kStride + step * kStep, kStride);
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

  void AddSums(const RowBlock& block, int64_t dim) {
    for (int32_t i = 0; i < block.num_rows; ++i) {
      if (!block.Sees(i)) continue;
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

  // ---- walk ----

  // All rows over the keys of one run; no row sees a key before `begin`.
  void Run(int32_t run, int32_t begin) {
    KvTiles(args_).Pack(run,
                        StepsOf({Greatest(begin - run, 0),
                                 Least(args_.num_keys - run, kRunKeys)}),
                        keys_, values_);
    RowBlock block{};
    block.scores = scores_;
    for (int32_t row = 0; row < args_.num_rows; row += RowBlock::kRows) {
      block.first_row = row;
      block.num_rows = Least(RowBlock::kRows, args_.num_rows - row);
      FindSeen(block, run);
      if (block.steps.begin >= block.steps.end) continue;
      if (block.num_rows > kTile) {
        RunBlock<true>(block);
      } else {
        RunBlock<false>(block);
      }
    }
  }

  // What the rows of a block see of a run.
  void FindSeen(RowBlock& block, int32_t run) const {
    Range any{kRunKeys, 0};
    block.all_whole = true;
    for (int32_t i = 0; i < block.num_rows; ++i) {
      const int32_t row = block.first_row + i;
      const int32_t hidden = Hidden(row);
      const Range seen{Greatest(hidden - run, 0),
                       Least(args_.visible[row] - run, kRunKeys)};
      block.seen[i] = seen;
      block.starts[i] = hidden >= run;
      if (seen.begin > 0 || seen.end < kRunKeys) block.all_whole = false;
      if (seen.begin >= seen.end) continue;
      any = {Least(any.begin, seen.begin), Greatest(any.end, seen.end)};
    }
    block.steps = any.begin < any.end ? StepsOf(any) : Range{0, 0};
  }

  template <bool kTwo>
  void RunBlock(RowBlock& block) {
    Score<kTwo>(block);
    PromptSoftmax::Run(args_, block);
    Sum<kTwo>(block);
  }

  Tiles& tiles_;
  const AttendArgs& args_;
  const int64_t padded_;  // dims
  // Parts of the scratch.
  uint16_t* keys_;
  uint16_t* values_;
  uint16_t* queries_;  // [rows][padded_]
  // [RowBlock::kRows][RowBlock::kStride], in which rows of p replace those of
  // s.
  float* scores_;
  float* sums_;  // [RowBlock::kRows][32 dims]
};

}  // namespace
}  // namespace millrace::models
