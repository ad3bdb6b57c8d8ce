// A block of a row, or a key, value or query of one head, as int8, in an
// anonymous namespace; the layout of an int8 page is written above AttendArgs
// in llm_kernels.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/neon/vec8.h"
#include "models/cpu/llm_kernels.h"

namespace millrace::models {
namespace {

// The scales that follow the integers of an int8 page of 64 keys.
inline const float* ScalesOf(const void* page, int32_t head_dim) {
  return reinterpret_cast<const float*>(static_cast<const char*>(page) +
                                        int64_t{kPageKeys} * head_dim);
}

inline Floats8 FloatsOfInt8(const int8_t* p) {
  const int16x8_t x = vmovl_s8(vld1_s8(p));
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(x))),
          vcvtq_f32_s32(vmovl_high_s16(x))};
}

// out = round(x / d), returns d; n is a multiple of 16.
inline float QuantizeHead(const float* x, int32_t n, int8_t* out) {
  using V = Neon8;
  constexpr float kLeastNormal = 0x1p-126f;
  Floats8 greatest = V::Zero();
  for (int32_t i = 0; i < n; i += 8) {
    greatest = V::Max(V::Abs(V::Load(x + i)), greatest);
  }
  const float d = V::LaneMax(greatest) / 127.0f;
  const bool zero = d < kLeastNormal;
  const Floats8 inverse = V::Set(zero ? 0.0f : 1.0f / d);
  for (int32_t i = 0; i < n; i += 8) {
    const Words8 q = V::ToInts(V::Mul(V::Load(x + i), inverse));
    const int16x8_t words = vcombine_s16(vmovn_s32(vreinterpretq_s32_u32(q.a)),
                                         vmovn_s32(vreinterpretq_s32_u32(q.b)));
    vst1_s8(out + i, vmovn_s16(words));
  }
  return zero ? 0.0f : d;
}

}  // namespace
}  // namespace millrace::models
