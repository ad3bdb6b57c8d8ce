// Number formats and the exp polynomial, one value at a time. In an anonymous
// namespace: each file gets its own copy and the linker none to choose from.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::models {
namespace {

inline float FloatOfBits(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}
inline uint32_t BitsOfFloat(float x) { return __builtin_bit_cast(uint32_t, x); }

// One rounding, as the vector units do it.
inline float Fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

inline float FloatOfBf16(uint16_t bits) {
  return FloatOfBits(uint32_t{bits} << 16);
}

// IEEE half: 1 sign, 5 exponent (bias 15), 10 mantissa bits. Exact.
inline float FloatOfHalf(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t exponent = (half >> 10) & 31;
  const uint32_t mantissa = half & 0x3ff;
  if (exponent == 31) {  // infinity or NaN (made quiet, as hardware does)
    const uint32_t quiet = mantissa != 0 ? 0x400000 : 0;
    return FloatOfBits(sign | 0x7f800000 | quiet | mantissa << 13);
  }
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return FloatOfBits(sign | BitsOfFloat(value));
  }
  return FloatOfBits(sign | (exponent + 112) << 23 | mantissa << 13);
}

// Round to nearest even; what is too large becomes infinity.
inline uint16_t HalfOfFloat(float x) {
  const uint32_t bits = BitsOfFloat(x);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) {  // NaN
    return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x1ff));
  }
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < 0x38800000) {  // below 2^-14: a subnormal half
    // 0.5f has an ulp of 2^-24, the ulp of subnormal halves: adding rounds.
    const float sum = FloatOfBits(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (BitsOfFloat(sum) - 0x3f000000));
  }
  const uint32_t odd = (magnitude >> 13) & 1;
  const uint32_t rounded = magnitude - (112u << 23) + 0xfff + odd;
  return static_cast<uint16_t>(sign | rounded >> 13);
}

// Adding 1.5 * 2^23 leaves no bits after the point: round to nearest even for
// |x| < 2^22, and the integer stands in the low bits.
inline constexpr float kRounder = 12582912.0f;
inline int32_t RoundToInt(float x) {
  return static_cast<int32_t>(BitsOfFloat(x + kRounder) -
                              BitsOfFloat(kRounder));
}

// See llm_kernels.h. Error below 2 ulp over the whole range.
inline float Exp(float x) {
  if (x < -87.33654f) return 0.0f;
  x = x > 88.37626f ? 88.37626f : x;
  const float shifted = x * 1.44269504f + kRounder;
  const float n = shifted - kRounder;
  float r = Fma(n, -0.693359375f, x);
  r = Fma(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = Fma(p, r, 1.3981999507e-3f);
  p = Fma(p, r, 8.3334519073e-3f);
  p = Fma(p, r, 4.1665795894e-2f);
  p = Fma(p, r, 1.6666665459e-1f);
  p = Fma(p, r, 5.0000001201e-1f);
  p = Fma(p, r * r, r) + 1.0f;
  return FloatOfBits(BitsOfFloat(p) + (BitsOfFloat(shifted) << 23));
}

// The tree over 8 lanes: halves, quarters, pairs.
template <typename T>
inline T LaneSum(const T* l) {
  return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

}  // namespace
}  // namespace millrace::models
