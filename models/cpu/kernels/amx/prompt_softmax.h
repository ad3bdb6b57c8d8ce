// The softmax of a block of rows over a run of keys: scores become weights in
// bf16, in the same place. A row keeps its greatest score so far; where a later
// run exceeds it, what the row has summed is scaled down. The chain is written
// in llm_kernels.h. Source: online softmax, Milakov and Gimelshein 2018.
// Anonymous namespace: every instruction set compiles its own copy.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/amx/kv_tiles.h"
#include "models/cpu/kernels/avx2/vec8.h"
#include "models/cpu/kernels/avx512vnni/vec16.h"
#include "models/cpu/llm_kernels.h"

namespace millrace::models {
namespace {

// A block of rows in a run of keys.
struct RowBlock {
  static constexpr int32_t kRows = 32;
  // Floats between rows of scores; not a power of two, which would put the rows
  // of a tile into few sets of L1.
  static constexpr int64_t kStride = KvTiles::kRunKeys + 16;

  int32_t first_row;
  int32_t num_rows;
  Range steps;     // of 32 keys, that any of its rows sees
  bool all_whole;  // each row sees all keys of the run
  // [kRows][kStride]; a row of p is bf16 from where its scores begin.
  float* scores;
  // Of each row:
  Range seen[kRows];                // its keys, none where end <= begin
  bool starts[kRows];               // these are its first
  alignas(64) float before[kRows];  // the greatest score of earlier runs
  alignas(64) float most[kRows];    // and with this one
  alignas(64) float shift[kRows];   // added to a score times log2(e)
  alignas(64) float carry[kRows];   // multiplies its sums of earlier runs

  bool Sees(int32_t i) const { return seen[i].begin < seen[i].end; }
};

class PromptSoftmax {
 public:
  static void Run(const AttendArgs& args, RowBlock& block) {
    if (block.all_whole && args.softcap == 0) {
      RunRows<true>(args, block);
    } else {
      RunRows<false>(args, block);
    }
  }

 private:
  static constexpr int32_t kStep = KvTiles::kStep;
  static constexpr float kLog2e = 1.44269504f;

  // `kWhole`: each row sees all keys, and there is no soft cap.
  template <bool kWhole>
  static void RunRows(const AttendArgs& args, RowBlock& block) {
    for (int32_t i = 0; i < block.num_rows; ++i) {
      if (kWhole || block.Sees(i)) FindMost<kWhole>(args, block, i);
    }
    for (int32_t i = 0; i < RowBlock::kRows; i += 16) {
      const __m512 shift = _mm512_mul_ps(_mm512_load_ps(block.most + i),
                                         _mm512_set1_ps(-kLog2e));
      _mm512_store_ps(block.shift + i, shift);
      _mm512_store_ps(block.carry + i,
                      Weight(_mm512_load_ps(block.before + i), shift));
    }
    for (int32_t i = 0; i < block.num_rows; ++i) {
      if (kWhole || block.Sees(i)) {
        Weigh<kWhole>(args, block, i);
      } else {
        Clear(block, i, block.steps);
      }
    }
  }

  // Steps with keys in the range, and those with no others.
  static Range StepsOf(Range keys) {
    return {keys.begin / kStep, (keys.end + kStep - 1) / kStep};
  }
  static Range WholeStepsOf(Range keys) {
    return {(keys.begin + kStep - 1) / kStep, keys.end / kStep};
  }
  // Which of the 32 keys of a step lie in the range.
  static uint32_t Mask(Range keys, int32_t step) {
    const auto below = [step](int32_t end) {
      const int32_t n = end - step * kStep;
      return (uint64_t{1} << (n < 0 ? 0 : n > kStep ? kStep : n)) - 1;
    };
    return static_cast<uint32_t>(below(keys.end) & ~below(keys.begin));
  }
  static __mmask16 Low(uint32_t mask) { return static_cast<__mmask16>(mask); }
  static __mmask16 High(uint32_t mask) {
    return static_cast<__mmask16>(mask >> 16);
  }

  // 2^(score * log2(e) + shift), the exponent being 0 at most: within 7.5e-5 of
  // it; 0 below 2^-100. A NaN stays one.
  static __m512 Weight(__m512 score, __m512 shift) {
    const __m512 x = _mm512_fmadd_ps(score, _mm512_set1_ps(kLog2e), shift);
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

  // The greatest score of row i.
  template <bool kWhole>
  static void FindMost(const AttendArgs& args, RowBlock& block, int32_t i) {
    const int32_t row = block.first_row + i;
    float* s = block.scores + i * RowBlock::kStride;
    const Range seen = kWhole ? Range{0, KvTiles::kRunKeys} : block.seen[i];
    const Range steps = StepsOf(seen);
    const Range whole = WholeStepsOf(seen);
    if (!kWhole && args.softcap > 0) SoftCap(s, args.softcap, steps);
    block.before[i] = block.starts[i] ? -__builtin_inff() : args.m[row];
    __m512 m0 = _mm512_set1_ps(block.before[i]);
    __m512 m1 = m0;
    for (int32_t t = steps.begin; t < steps.end; ++t) {
      const __m512 low = _mm512_load_ps(s + t * kStep);
      const __m512 high = _mm512_load_ps(s + t * kStep + 16);
      if (t >= whole.begin && t < whole.end) {
        m0 = _mm512_max_ps(low, m0);
        m1 = _mm512_max_ps(high, m1);
      } else {
        const uint32_t mask = Mask(seen, t);
        m0 = _mm512_mask_max_ps(m0, Low(mask), low, m0);
        m1 = _mm512_mask_max_ps(m1, High(mask), high, m1);
      }
    }
    m0 = _mm512_max_ps(m0, m1);
    args.m[row] = LaneMax8(_mm256_max_ps(_mm512_castps512_ps256(m0),
                                         _mm512_extractf32x8_ps(m0, 1)));
    block.most[i] = args.m[row];
  }

  // Scores of row i become weights, and l their sum.
  template <bool kWhole>
  static void Weigh(const AttendArgs& args, const RowBlock& block, int32_t i) {
    const int32_t row = block.first_row + i;
    const float* s = block.scores + i * RowBlock::kStride;
    auto* p = reinterpret_cast<uint16_t*>(block.scores + i * RowBlock::kStride);
    const Range seen = kWhole ? Range{0, KvTiles::kRunKeys} : block.seen[i];
    const Range steps = StepsOf(seen);
    const Range whole = WholeStepsOf(seen);
    const __m512 shift = _mm512_set1_ps(block.shift[i]);
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
    __m512 even = _mm512_setzero_ps();
    __m512 odd = even;
    for (int32_t t = steps.begin; t < steps.end; ++t) {
      __m512 low = Weight(_mm512_load_ps(s + t * kStep), shift);
      __m512 high = Weight(_mm512_load_ps(s + t * kStep + 16), shift);
      if (t < whole.begin || t >= whole.end) {
        const uint32_t mask = Mask(seen, t);
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
    if constexpr (!kWhole) {
      Clear(block, i, {block.steps.begin, steps.begin});
      Clear(block, i, {steps.end, block.steps.end});
    }
    even = _mm512_add_ps(even, odd);
    const float l = LaneSum8(_mm256_add_ps(_mm512_castps512_ps256(even),
                                           _mm512_extractf32x8_ps(even, 1)));
    args.l[row] =
        block.starts[i] ? l : __builtin_fmaf(args.l[row], block.carry[i], l);
  }

  // Weights of 0 in some steps of row i.
  static void Clear(const RowBlock& block, int32_t i, Range steps) {
    auto* p = reinterpret_cast<uint16_t*>(block.scores + i * RowBlock::kStride);
    for (int32_t t = steps.begin; t < steps.end; ++t) {
      _mm512_store_si512(p + t * kStep, _mm512_setzero_si512());
    }
  }
};

}  // namespace
}  // namespace millrace::models
