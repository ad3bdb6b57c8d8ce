// One call of a linear function whose matrix is packed in groups of 8 rows:
// where a group's weights are and where its outputs go.
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

}  // namespace
}  // namespace millrace::models
