// Sums of a tile of kR rows and kNv vectors, in registers, of any vector width;
// V is what kernels/dense/gemm.h says. Always inlined: a call would put them
// into memory, in the loop, too (a tenth of the speed). Anonymous namespace.
#pragma once

#include <cstdint>

namespace millrace::models {
namespace {

template <class V, int kR, int kNv>
[[gnu::always_inline]] inline void ClearSums(typename V::F (&sums)[kR][kNv]) {
#pragma GCC unroll 16
  for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kNv; ++v) sums[r][v] = V::Zero();
  }
}

template <class V, int kR, int kNv>
[[gnu::always_inline]] inline void StoreSums(
    const typename V::F (&sums)[kR][kNv], float* to, int64_t ld) {
#pragma GCC unroll 16
  for (int r = 0; r < kR; ++r, to += ld) {
#pragma GCC unroll 16
    for (int v = 0; v < kNv; ++v) V::Store(to + v * V::kLanes, sums[r][v]);
  }
}

// sums = before + sums, of which `live` columns are there; before may be null.
template <class V, int kR, int kNv>
[[gnu::always_inline]] inline void AddSums(const float* before, int64_t ld,
                                           int64_t live,
                                           typename V::F (&sums)[kR][kNv]) {
  if (before == nullptr) return;
  if (live == kNv * V::kLanes) {
#pragma GCC unroll 16
    for (int r = 0; r < kR; ++r, before += ld) {
#pragma GCC unroll 16
      for (int v = 0; v < kNv; ++v) {
        sums[r][v] = V::Add(V::Load(before + v * V::kLanes), sums[r][v]);
      }
    }
    return;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kR; ++r, before += ld) {
#pragma GCC unroll 16
    for (int v = 0; v < kNv; ++v) {
      const int64_t at = v * V::kLanes;
      sums[r][v] = V::Add(V::LoadFirst(before + at, live - at), sums[r][v]);
    }
  }
}

}  // namespace
}  // namespace millrace::models
