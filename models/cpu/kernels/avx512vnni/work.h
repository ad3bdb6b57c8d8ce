// Shared by linear*.cc: the arguments of one product, loads in the order in
// which activations lie, and the order of tiles.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/packing.h"
#include "models/cpu/llm_kernels.h"

namespace millrace::models {
namespace {

using Pack16 = Packing<16>;

// Bytes of prefetch. One token's product on an AMD EPYC (family 26), 8192
// against 2048: Q4_1 +4 to +16 %, Q4_K +14 %, Q8_0 0 to +18 %; 16384 less.
constexpr int64_t kAhead = 8192;

// A word of the activations, wherever it stands.
using Int32Anywhere = int32_t __attribute__((may_alias, aligned(1)));

// acc += w . x[0…3] in each lane. Assembly because g++ 12 does not fold the
// broadcast into the instruction.
inline __m512i Dot4(__m512i acc, __m512i w, const int8_t* x) {
  asm("vpdpbusd %[x]%{1to16%}, %[w], %[acc]"
      : [acc] "+v"(acc)
      : [w] "v"(w), [x] "m"(*reinterpret_cast<const Int32Anywhere*>(x)));
  return acc;
}
// w[0] * half[0] + w[1] * half[1] of the int16 pairs in each lane.
inline __m512i DotPair(__m512i w, const int16_t* half) {
  __m512i acc = _mm512_setzero_si512();
  asm("vpdpwssd %[x]%{1to16%}, %[w], %[acc]"
      : [acc] "+v"(acc)
      : [w] "v"(w), [x] "m"(*reinterpret_cast<const Int32Anywhere*>(half)));
  return acc;
}

// -kBy * sum in each lane: by integer units, which leave those that multiply
// vectors alone.
template <int32_t kBy>
inline __m512i MinusTimes(int32_t sum) {
  return _mm512_set1_epi32(-kBy * sum);
}

inline __m512i LoadWords(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline __m512 LoadHalves(const uint8_t* p) {
  return _mm512_cvtph_ps(
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline void Prefetch(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
}

struct Work {
  const PackedMatrix& w;
  const ActRows& act;
  float* y;
  int64_t ld_y;

  const uint8_t* Group(int64_t g) const {
    return static_cast<const uint8_t*>(w.data) + g * w.group_bytes;
  }
  // The outputs of a group for a token; the last group may be partial.
  void Store(int64_t token, int64_t g, __m512 v) const {
    float* out = y + token * ld_y + g * 16;
    if (g * 16 + 16 <= w.n) {
      _mm512_storeu_ps(out, v);
    } else {
      const auto rows = static_cast<unsigned>(w.n - g * 16);
      _mm512_mask_storeu_ps(out, static_cast<__mmask16>((1u << rows) - 1), v);
    }
  }
};

using Tile = void (*)(const Work&, int64_t g, int64_t token);

// tiles[i] takes i + 1 tokens. Outside in: token tile, row group.
inline void RunTiles(const Tile* tiles, int max_tokens, const Work& work,
                     int64_t group_begin, int64_t group_end, int64_t tokens) {
  for (int64_t token = 0; token < tokens; token += max_tokens) {
    const int64_t left = tokens - token;
    const Tile tile = tiles[(left < max_tokens ? left : max_tokens) - 1];
    for (int64_t g = group_begin; g < group_end; ++g) tile(work, g, token);
  }
}

}  // namespace
}  // namespace millrace::models
