// IEEE half precision and bfloat16: to f32 exactly, from f32 to nearest even.
#pragma once

#include <cstdint>

namespace millrace::models {

float HalfToFloat(uint16_t half);
uint16_t FloatToHalf(float value);
float BFloat16ToFloat(uint16_t bits);
uint16_t FloatToBFloat16(float value);

// Elements of such tensors as values, for code that is generic over types.
struct Half {
  Half() = default;
  explicit Half(float value) : bits(FloatToHalf(value)) {}
  operator float() const { return HalfToFloat(bits); }  // NOLINT
  uint16_t bits = 0;
};
struct BFloat16 {
  BFloat16() = default;
  explicit BFloat16(float value) : bits(FloatToBFloat16(value)) {}
  operator float() const { return BFloat16ToFloat(bits); }  // NOLINT
  uint16_t bits = 0;
};

}  // namespace millrace::models
