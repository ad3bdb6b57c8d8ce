// The file's integer weights, read piece by piece in plain code: what the
// scalar table computes with, and what packing takes apart.
//
// A row is a sequence of blocks as the file counts them: of 32 columns, or for
// the K types and IQ4_XS of 256, which are eight blocks of 32 (call them parts)
// under one header. Header fields, and the code of every column:
//
//   type    bytes   header                            w of code q
//   Q8_0    34/32   d                                 d * int8(q)
//   Q4_0    18/32   d                                 d * (q - 8)
//   Q4_1    20/32   d, m                              d * q + m
//   Q5_0    22/32   d                                 d * (q - 16)
//   Q5_1    24/32   d, m                              d * q + m
//   IQ4_NL  18/32   d                                 d * kIq4[q]
//   MXFP4   17/32   8-bit exponent e, d = 2^(e-128)   d * kFp4[q]
//   Q2_K    84/256  d, dmin, 16 bytes (sc, mn 4 bits) d*sc * q - dmin*mn
//   Q3_K   110/256  d, 12 bytes (16 x 6 bits sc)      d*(sc-32) * (q - 4)
//   Q4_K   144/256  d, dmin, 12 bytes (8 x sc, mn)    d*sc * q - dmin*mn
//   Q5_K   176/256  the same                          d*sc * q - dmin*mn
//   Q6_K   210/256  d, 16 int8 sc                     d*sc * (q - 32)
//   IQ4_XS 136/256  d, 16 + 32 bits (8 x 6 bits ls)   d*(ls-32) * kIq4[q]
//
// d, m, dmin are f16. Q2_K, Q3_K and Q6_K have a scale for each half (16
// columns) of a part, the others one for each part. Source: ggml's structs.
// Anonymous namespace: every instruction set compiles its own copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/scalar/numbers.h"
#include "models/cpu/llm_kernels.h"

namespace millrace::models {
namespace {

inline constexpr int8_t kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};
// Twice the values of a 4-bit float (1 sign, 2 exponent, 1 mantissa bits).
inline constexpr int8_t kFp4[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                    0, -1, -2, -3, -4, -6, -8, -12};

// A number of the header: where it stands in the file's block, and its bytes.
struct Field {
  int32_t offset;
  int32_t size;
};

struct BlockShape {
  int32_t columns;  // 32 or 256; 0 for float formats
  int32_t bytes;
  // Which bits of a code its planes hold: 8 or 4 low bits, a plane of 2 bits
  // from two_at on, a plane of 1 bit at one_at; -1: no such plane.
  int32_t low_bits;
  int32_t two_at;
  int32_t one_at;
  int32_t num_fields;
  Field fields[6];
};

constexpr BlockShape ShapeOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      break;
    case WeightFormat::kQ8_0:
      return {32, 34, 8, -1, -1, 1, {{0, 2}}};
    case WeightFormat::kQ4_0:
    case WeightFormat::kIQ4_NL:
      return {32, 18, 4, -1, -1, 1, {{0, 2}}};
    case WeightFormat::kQ4_1:
      return {32, 20, 4, -1, -1, 2, {{0, 2}, {2, 2}}};
    case WeightFormat::kQ5_0:
      return {32, 22, 4, -1, 4, 1, {{0, 2}}};
    case WeightFormat::kQ5_1:
      return {32, 24, 4, -1, 4, 2, {{0, 2}, {2, 2}}};
    case WeightFormat::kMXFP4:
      return {32, 17, 4, -1, -1, 1, {{0, 1}}};
    case WeightFormat::kQ2_K:
      return {256,
              84,
              0,
              0,
              -1,
              6,
              {{80, 2}, {82, 2}, {0, 4}, {4, 4}, {8, 4}, {12, 4}}};
    case WeightFormat::kQ3_K:
      return {256, 110, 0, 0, 2, 4, {{108, 2}, {96, 4}, {100, 4}, {104, 4}}};
    case WeightFormat::kQ4_K:
      return {
          256, 144, 4, -1, -1, 5, {{0, 2}, {2, 2}, {4, 4}, {8, 4}, {12, 4}}};
    case WeightFormat::kQ5_K:
      return {256, 176, 4, -1, 4, 5, {{0, 2}, {2, 2}, {4, 4}, {8, 4}, {12, 4}}};
    case WeightFormat::kQ6_K:
      return {256,
              210,
              4,
              4,
              -1,
              5,
              {{208, 2}, {192, 4}, {196, 4}, {200, 4}, {204, 4}}};
    case WeightFormat::kIQ4_XS:
      return {256, 136, 4, -1, -1, 3, {{0, 2}, {2, 2}, {4, 4}}};
  }
  return {};
}

constexpr bool IsInteger(WeightFormat format) {
  return ShapeOf(format).columns != 0;
}
// w = d * q + m, with m added by its own fma of the chain.
constexpr bool HasMin(WeightFormat format) {
  return format == WeightFormat::kQ4_1 || format == WeightFormat::kQ5_1 ||
         format == WeightFormat::kQ4_K || format == WeightFormat::kQ5_K;
}
// The integer that a code stands for is the code less this, or an entry of a
// table.
constexpr int32_t OffsetOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ3_K:
      return 4;
    case WeightFormat::kQ4_0:
      return 8;
    case WeightFormat::kQ5_0:
      return 16;
    case WeightFormat::kQ6_K:
      return 32;
    default:
      return 0;
  }
}

inline int32_t IntegerOf(WeightFormat format, uint8_t code) {
  switch (format) {
    case WeightFormat::kQ8_0:
      return static_cast<int8_t>(code);
    case WeightFormat::kIQ4_NL:
    case WeightFormat::kIQ4_XS:
      return kIq4[code];
    case WeightFormat::kMXFP4:
      return kFp4[code];
    default:
      return code - OffsetOf(format);
  }
}

// Codes of one part of 32 columns of a block of the file, four columns at a
// time in the bytes of a word.
inline void ReadCodes(WeightFormat format, const uint8_t* block, int part,
                      uint8_t q[32]) {
  uint32_t four[8] = {};
  const auto load = [](const uint8_t* p, int j) {
    uint32_t word;
    __builtin_memcpy(&word, p + 4 * j, 4);
    return word;
  };
  // 16 bytes: column i in the low, i + 16 in the high half of byte i.
  const auto nibbles = [&](const uint8_t* p) {
    for (int j = 0; j < 4; ++j) {
      four[j] |= load(p, j) & 0x0f0f0f0f;
      four[j + 4] |= load(p, j) >> 4 & 0x0f0f0f0f;
    }
  };
  // 32 bits, column i's bit i. The product puts bit b of four at bit 8 b.
  const auto bits = [&](const uint8_t* p, int to) {
    for (int j = 0; j < 8; ++j) {
      const uint32_t four_bits = load(p, 0) >> 4 * j & 15;
      four[j] |= (four_bits * 0x00204081 & 0x01010101) << to;
    }
  };
  // 32 bytes, column i in byte i, other parts in the other bits.
  const auto bytes = [&](const uint8_t* p, int shift, uint32_t mask, int to) {
    for (int j = 0; j < 8; ++j) {
      four[j] |= (load(p, j) >> shift & mask * 0x01010101) << to;
    }
  };
  const int half = part / 4;  // of the 256 columns
  switch (format) {
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      break;
    case WeightFormat::kQ8_0:
      bytes(block + 2, 0, 255, 0);
      break;
    case WeightFormat::kQ4_0:
    case WeightFormat::kIQ4_NL:
      nibbles(block + 2);
      break;
    case WeightFormat::kQ4_1:
      nibbles(block + 4);
      break;
    case WeightFormat::kMXFP4:
      nibbles(block + 1);
      break;
    case WeightFormat::kIQ4_XS:
      nibbles(block + 8 + 16 * part);
      break;
    case WeightFormat::kQ5_0:
      nibbles(block + 6);
      bits(block + 2, 4);
      break;
    case WeightFormat::kQ5_1:
      nibbles(block + 8);
      bits(block + 4, 4);
      break;
    case WeightFormat::kQ2_K:
      bytes(block + 16 + 32 * half, 2 * (part % 4), 3, 0);
      break;
    case WeightFormat::kQ3_K:
      bytes(block + 32 + 32 * half, 2 * (part % 4), 3, 0);
      bytes(block, part, 1, 2);
      break;
    case WeightFormat::kQ4_K:
      bytes(block + 16 + 32 * (part / 2), 4 * (part % 2), 15, 0);
      break;
    case WeightFormat::kQ5_K:
      bytes(block + 48 + 32 * (part / 2), 4 * (part % 2), 15, 0);
      bytes(block + 16, part, 1, 4);
      break;
    case WeightFormat::kQ6_K:
      bytes(block + 64 * half + 32 * (part % 2), 4 * (part % 4 / 2), 15, 0);
      bytes(block + 128 + 32 * half, 2 * (part % 4), 3, 4);
      break;
  }
  __builtin_memcpy(q, four, 32);
}

// What the chains of llm_kernels.h need beside the codes of one part. Q4_K,
// Q5_K and IQ4_XS: d and m already hold the part's scale, and m its sign.
struct Scales {
  float d;
  float m;           // 0 without minima; Q2_K: dmin
  int32_t scale[2];  // of each half; 1 but for Q2_K, Q3_K, Q6_K
  int32_t min[2];    // Q2_K alone
};

inline float HalfAt(const uint8_t* p) {
  return FloatOfHalf(static_cast<uint16_t>(p[0] | p[1] << 8));
}

// The 6-bit scale and minimum of part 0…7 in the 12 bytes of Q4_K and Q5_K.
inline void ReadScaleMin(const uint8_t* p, int part, int* sc, int* mn) {
  const int i = part % 4;
  if (part < 4) {
    *sc = p[i] & 63;
    *mn = p[i + 4] & 63;
  } else {
    *sc = (p[i + 8] & 15) | (p[i] >> 6) << 4;
    *mn = p[i + 8] >> 4 | (p[i + 4] >> 6) << 4;
  }
}

// Reads only the fields of `block`'s header.
inline Scales ReadScales(WeightFormat format, const uint8_t* block, int part) {
  Scales s = {0.0f, 0.0f, {1, 1}, {0, 0}};
  if (format != WeightFormat::kMXFP4) {
    s.d = HalfAt(block + ShapeOf(format).fields[0].offset);
  }
  switch (format) {
    case WeightFormat::kQ4_1:
    case WeightFormat::kQ5_1:
      s.m = HalfAt(block + 2);
      break;
    case WeightFormat::kMXFP4:  // 2^(e - 128), of which two are subnormal
      s.d = FloatOfBits(block[0] < 2 ? 0x200000u << block[0]
                                     : (block[0] - 1u) << 23);
      break;
    case WeightFormat::kIQ4_XS: {
      const int low = block[4 + part / 2] >> 4 * (part % 2) & 15;
      const int high = (block[2] | block[3] << 8) >> 2 * part & 3;
      s.d *= static_cast<float>((low | high << 4) - 32);
      break;
    }
    case WeightFormat::kQ4_K:
    case WeightFormat::kQ5_K: {
      int sc, mn;
      ReadScaleMin(block + 4, part, &sc, &mn);
      s.d *= static_cast<float>(sc);
      s.m = -(HalfAt(block + 2) * static_cast<float>(mn));
      break;
    }
    case WeightFormat::kQ2_K:
      s.m = HalfAt(block + 82);
      for (int h = 0; h < 2; ++h) {
        s.scale[h] = block[2 * part + h] & 15;
        s.min[h] = block[2 * part + h] >> 4;
      }
      break;
    case WeightFormat::kQ3_K:
      for (int h = 0; h < 2; ++h) {
        const int i = 2 * part + h;
        const int low = block[96 + i % 8] >> 4 * (i / 8) & 15;
        const int high = block[104 + i % 4] >> 2 * (i / 4) & 3;
        s.scale[h] = (low | high << 4) - 32;
      }
      break;
    case WeightFormat::kQ6_K:
      for (int h = 0; h < 2; ++h) {
        s.scale[h] = static_cast<int8_t>(block[192 + 2 * part + h]);
      }
      break;
    default:
      break;
  }
  return s;
}

// The 32 weights of a part, see "Unpacked weights" in llm_kernels.h.
inline void UnpackPart(WeightFormat format, const Scales& s,
                       const uint8_t q[32], float* out) {
  for (int i = 0; i < 32; ++i) {
    const auto w = static_cast<float>(IntegerOf(format, q[i]));
    const auto scale = static_cast<float>(s.scale[i / 16]);
    if (HasMin(format)) {
      out[i] = Fma(w, s.d, s.m);
    } else if (format == WeightFormat::kQ2_K) {
      const auto min = static_cast<float>(s.min[i / 16]);
      out[i] = Fma(w, s.d * scale, -(s.m * min));
    } else {
      out[i] = w * (s.d * scale);
    }
  }
}

}  // namespace
}  // namespace millrace::models
