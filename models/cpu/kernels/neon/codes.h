// The weights of one packed part, 8 rows x 32 columns, as signed bytes: columns
// 4j…4j+3 of every row in vector j. See packing.h.
#pragma once

#include "models/cpu/kernels/neon/dot.h"
#include "models/cpu/kernels/packing.h"

namespace millrace::models {
namespace {

using Pack8 = Packing<8>;

struct Codes8x4 {
  uint8x16_t a, b;
};

inline Codes8x4 LoadCodes(const uint8_t* p) {
  return {vld1q_u8(p), vld1q_u8(p + 16)};
}
inline Codes8x4 And(Codes8x4 x, uint8_t mask) {
  const uint8x16_t all = vdupq_n_u8(mask);
  return {vandq_u8(x.a, all), vandq_u8(x.b, all)};
}
inline Codes8x4 Or(Codes8x4 x, Codes8x4 y) {
  return {vorrq_u8(x.a, y.a), vorrq_u8(x.b, y.b)};
}
// Up by `bits`, or down where that is negative.
inline Codes8x4 Shift(Codes8x4 x, int bits) {
  const int8x16_t by = vdupq_n_s8(static_cast<int8_t>(bits));
  return {vshlq_u8(x.a, by), vshlq_u8(x.b, by)};
}

template <WeightFormat kFormat>
[[gnu::always_inline]] inline void UnpackCodes(const uint8_t* p,
                                               Codes8x4 w[8]) {
  constexpr BlockShape kShape = ShapeOf(kFormat);
  constexpr int64_t kTwoAt = Pack8::TwoAt(kFormat);
  constexpr int64_t kOneAt = Pack8::OneAt(kFormat);
  if constexpr (kShape.low_bits == 8) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) w[j] = LoadCodes(p + 32 * j);
  } else if constexpr (kShape.low_bits == 4) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const Codes8x4 q = LoadCodes(p + 32 * j);
      w[j] = And(q, 15);
      w[j + 4] = Shift(q, -4);
    }
  } else {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) w[j] = {vdupq_n_u8(0), vdupq_n_u8(0)};
  }
  if constexpr (kShape.two_at >= 0) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const Codes8x4 two = LoadCodes(p + kTwoAt + 32 * (j / 4));
      w[j] = Or(w[j], And(Shift(two, kShape.two_at - 2 * (j % 4)),
                          3 << kShape.two_at));
    }
  }
  if constexpr (kShape.one_at >= 0) {
    const Codes8x4 one = LoadCodes(p + kOneAt);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      w[j] = Or(w[j], And(Shift(one, kShape.one_at - j), 1 << kShape.one_at));
    }
  }
}

// What a code stands for; all of them fit a signed byte.
template <WeightFormat kFormat>
[[gnu::always_inline]] inline int8x16_t WeightsOf(uint8x16_t codes) {
  if constexpr (kFormat == WeightFormat::kIQ4_NL ||
                kFormat == WeightFormat::kIQ4_XS) {
    return vqtbl1q_s8(vld1q_s8(kIq4), codes);
  } else if constexpr (kFormat == WeightFormat::kMXFP4) {
    return vqtbl1q_s8(vld1q_s8(kFp4), codes);
  } else if constexpr (OffsetOf(kFormat) != 0) {
    return vsubq_s8(vreinterpretq_s8_u8(codes), vdupq_n_s8(OffsetOf(kFormat)));
  } else {
    return vreinterpretq_s8_u8(codes);
  }
}

template <WeightFormat kFormat>
[[gnu::always_inline]] inline void UnpackWeights(const uint8_t* part,
                                                 Bytes8x4 w[8]) {
  Codes8x4 codes[8];
  UnpackCodes<kFormat>(part, codes);
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    w[j] = {WeightsOf<kFormat>(codes[j].a), WeightsOf<kFormat>(codes[j].b)};
  }
}

}  // namespace
}  // namespace millrace::models
