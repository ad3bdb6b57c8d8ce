// One call of a linear function whose matrix is packed in groups of 8 rows:
// where a group's weights are, where its outputs go, and where activations
// come from.
#pragma once

#include "models/cpu/kernels/avx2/vec8.h"
#include "models/cpu/kernels/packing.h"

namespace millrace::models {
namespace {

using Pack8 = Packing<8>;

struct Work {
  const PackedMatrix& w;
  const ActRows& act;
  float* y;
  int64_t ld_y;

  const uint8_t* Group(int64_t g) const {
    return static_cast<const uint8_t*>(w.data) + g * w.group_bytes;
  }
  // The outputs of a group for a token; the last group may be partial.
  void Store(int64_t token, int64_t g, __m256 v) const {
    float* out = y + token * ld_y + g * 8;
    if (g * 8 + 8 <= w.n) {
      _mm256_storeu_ps(out, v);
    } else {
      _mm256_maskstore_ps(out, FirstLanes(w.n - g * 8), v);
    }
  }
  __m256 Load(int64_t token, int64_t g) const {
    const float* in = y + token * ld_y + g * 8;
    if (g * 8 + 8 <= w.n) return _mm256_loadu_ps(in);
    return _mm256_maskload_ps(in, FirstLanes(w.n - g * 8));
  }
};

// Where the activations of a tile's first token and first block stand.
struct TileActs {
  const int8_t* q;
  const float* d;
  const float* s;
  const int32_t* sum;
  const int16_t* half;
  int64_t ld_q;
  int64_t ld_block;
};

inline TileActs ActsAt(const ActRows& act, int64_t token, int64_t block) {
  const int64_t at = token * act.ld_block + block;
  return {act.q + token * act.ld_q + block * 32,
          act.d + at,
          act.s + at,
          act.sum + at,
          act.half + 2 * at,
          act.ld_q,
          act.ld_block};
}

// Reads of 32 bits of activations, wherever they stand.
using Int32Anywhere = int32_t __attribute__((may_alias, aligned(1)));

inline __m256i Broadcast4(const int8_t* x) {
  return _mm256_set1_epi32(*reinterpret_cast<const Int32Anywhere*>(x));
}
// The sums of both halves of block `at`, in every lane.
inline __m256i HalfSums(const TileActs& x, int64_t at) {
  return _mm256_set1_epi32(
      *reinterpret_cast<const Int32Anywhere*>(x.half + 2 * at));
}
inline __m256i LoadQuants(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline __m256 LoadHalves(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline void Prefetch(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
}

}  // namespace
}  // namespace millrace::models
