// The product of four int8 columns of eight rows and four of one row: sdot
// where a file is compiled for it, else products of 16 bits, which are exact,
// too. Anonymous namespace.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/neon/vec8.h"

namespace millrace::models {
namespace {

// Byte i of row r is byte 4 r + i: rows 0…3 in a, 4…7 in b.
struct Bytes8x4 {
  int8x16_t a, b;
};

inline int8x16_t Broadcast4(const int8_t* four) {
  int32_t bytes;
  __builtin_memcpy(&bytes, four, 4);
  return vreinterpretq_s8_s32(vdupq_n_s32(bytes));
}

// acc + Σ of four products in each lane.
inline int32x4_t DotFours(int32x4_t acc, int8x16_t x, int8x16_t y) {
#if defined(__ARM_FEATURE_DOTPROD)
  return vdotq_s32(acc, x, y);
#else
  const int16x8_t low = vmull_s8(vget_low_s8(x), vget_low_s8(y));
  const int16x8_t high = vmull_high_s8(x, y);
  return vaddq_s32(acc, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
#endif
}

inline Words8 DotFours(Words8 acc, const Bytes8x4& w, int8x16_t x) {
  return {
      vreinterpretq_u32_s32(DotFours(vreinterpretq_s32_u32(acc.a), w.a, x)),
      vreinterpretq_u32_s32(DotFours(vreinterpretq_s32_u32(acc.b), w.b, x))};
}

}  // namespace
}  // namespace millrace::models
