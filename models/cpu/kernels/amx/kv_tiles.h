// Keys and values of KV pages as bf16 in the order of operand B of a tile
// product: rows of 16 words, a word two values that follow each other where the
// product sums, dims of a key or keys of a dim. Pages hold K with 16 keys side
// by side and V by keys, so no transpose is needed. Anonymous namespace: every
// instruction set compiles its own copy.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/avx2/head8.h"
#include "models/cpu/llm_kernels.h"

namespace millrace::models {
namespace {

// Of numbers that count within something: begin…end - 1.
struct Range {
  int32_t begin;
  int32_t end;
};

// The pages of a call; see AttendArgs for what is in them.
class KvTiles {
 public:
  static constexpr int32_t kRunKeys = 256;
  static constexpr int32_t kStep = 32;       // bf16 values in a row of a tile
  static constexpr int32_t kTileSize = 512;  // bf16 values in a tile
  static constexpr int32_t kRunSteps = kRunKeys / kStep;

  // Dims filled up to whole steps.
  static int64_t PaddedDims(int32_t head_dim) {
    return (head_dim + kStep - 1) / kStep * kStep;
  }

  explicit KvTiles(const AttendArgs& args)
      : args_(args), padded_(PaddedDims(args.head_dim)) {}

  // Both kRunKeys * PaddedDims values: keys run + 32 begin…run + 32 end - 1.
  //   keys    [step of 32 keys][step of 32 dims][2 x 16 keys] tiles
  //   values  [32 dims][step of 32 keys][2 x 16 dims] tiles
  // Values are finite, since a row that does not see one multiplies it by 0.
  void Pack(int32_t run, Range steps, uint16_t* keys, uint16_t* values) const {
    if (args_.kv_format == KvFormat::kF32) {
      PackAs<KvFormat::kF32>(run, steps, keys, values);
    } else if (args_.kv_format == KvFormat::kInt8) {
      PackAs<KvFormat::kInt8>(run, steps, keys, values);
    } else {
      PackAs<KvFormat::kF16>(run, steps, keys, values);
    }
  }

 private:
  // Words of two bf16, low[i] below high[i].
  static __m512i Pairs(__m512 low, __m512 high) {
    const auto halves =
        reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
    const __m512i order = _mm512_set_epi16(
        31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22,
        6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, halves);
  }

  static __m512 OfHalves(const void* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  static __m512 OfInts(__m512i x) {
    return __builtin_convertvector(reinterpret_cast<__v16si>(x), __v16sf);
  }

  // Dim `d` of 16 keys of a page, from `key` on.
  template <KvFormat kFormat>
  __m512 LoadKeys(const void* page, int32_t key, int32_t d) const {
    const int64_t group = int64_t{key / 16} * args_.head_dim * 16;
    if constexpr (kFormat == KvFormat::kF32) {
      return _mm512_loadu_ps(static_cast<const float*>(page) + group + d * 16);
    } else if constexpr (kFormat == KvFormat::kInt8) {
      const __m512i fours = _mm512_loadu_si512(
          static_cast<const int8_t*>(page) + group + d / 4 * 64);
      const auto to_top = static_cast<unsigned>(24 - d % 4 * 8);
      const __m512i q = _mm512_srai_epi32(_mm512_slli_epi32(fours, to_top), 24);
      return _mm512_mul_ps(
          OfInts(q), _mm512_loadu_ps(ScalesOf(page, args_.head_dim) + key));
    } else {
      return OfHalves(static_cast<const uint16_t*>(page) + group + d * 16);
    }
  }
  // Dims d…d + 15 of a value.
  template <KvFormat kFormat>
  __m512 LoadValue(const void* page, int32_t key, int32_t d) const {
    const int64_t at = int64_t{key} * args_.head_dim + d;
    __m512 v;
    if constexpr (kFormat == KvFormat::kF32) {
      v = _mm512_loadu_ps(static_cast<const float*>(page) + at);
    } else if constexpr (kFormat == KvFormat::kInt8) {
      const auto* q = static_cast<const int8_t*>(page) + at;
      v = _mm512_mul_ps(OfInts(_mm512_cvtepi8_epi32(_mm_loadu_si128(
                            reinterpret_cast<const __m128i*>(q)))),
                        _mm512_set1_ps(ScalesOf(page, args_.head_dim)[key]));
    } else {
      v = OfHalves(static_cast<const uint16_t*>(page) + at);
    }
    const __m512 most = _mm512_set1_ps(0x1.fep127f);
    const __m512 least = _mm512_set1_ps(-0x1.fep127f);
    return _mm512_max_ps(_mm512_min_ps(v, most), least);
  }

  template <KvFormat kFormat>
  void PackAs(int32_t run, Range steps, uint16_t* keys,
              uint16_t* values) const {
    for (int32_t step = steps.begin; step < steps.end; ++step) {
      const int32_t key = run + step * kStep;
      PackKeys<kFormat>(args_.k_pages[key / kPageKeys], key % kPageKeys,
                        keys + step * kStep * padded_);
      PackValues<kFormat>(args_.v_pages[key / kPageKeys], key % kPageKeys,
                          values + step * 2 * kTileSize);
    }
  }

  // 32 keys of a page, from `key` on.
  template <KvFormat kFormat>
  void PackKeys(const void* page, int32_t key, uint16_t* to) const {
    for (int64_t dim = 0; dim < padded_; dim += kStep, to += 2 * kTileSize) {
      for (int32_t pair = 0; pair < kStep / 2; ++pair) {
        const auto d = static_cast<int32_t>(dim) + 2 * pair;
        for (int32_t half = 0; half < 2; ++half) {
          const int32_t k = key + 16 * half;
          _mm512_store_si512(to + half * kTileSize + pair * kStep,
                             d < args_.head_dim
                                 ? Pairs(LoadKeys<kFormat>(page, k, d),
                                         LoadKeys<kFormat>(page, k, d + 1))
                                 : _mm512_setzero_si512());
        }
      }
    }
  }

  template <KvFormat kFormat>
  void PackValues(const void* page, int32_t key, uint16_t* to) const {
    for (int32_t pair = 0; pair < kStep / 2; ++pair) {
      const int32_t k = key + 2 * pair;
      for (int32_t d = 0; d < padded_; d += 16) {
        uint16_t* tile = to + int64_t{d / kStep} * kRunSteps * 2 * kTileSize +
                         d % kStep / 16 * kTileSize;
        _mm512_store_si512(tile + pair * kStep,
                           d < args_.head_dim
                               ? Pairs(LoadValue<kFormat>(page, k, d),
                                       LoadValue<kFormat>(page, k + 1, d))
                               : _mm512_setzero_si512());
      }
    }
  }

  const AttendArgs& args_;
  const int64_t padded_;
};

}  // namespace
}  // namespace millrace::models
