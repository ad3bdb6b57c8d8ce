// The plain dequantiser: what a weight is worth, with no thought of speed and
// one value at a time, so that each line can be held against the definition of
// the format. Kernels have their own, on packed weights.
//
// The K types hold 256 values in one block. Their bytes run along a part of the
// values while the bits of one byte step over it: value i's place is worked out
// from i's digits, i = 128 * half + 32 * part + at.
#include <array>
#include <bit>
#include <cstring>

#include "models/tensor/quant.h"

namespace millrace::models {
namespace {

constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};
// Twice the values of e2m1, so that they are integers.
constexpr int8_t kFp4Values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                   0, -1, -2, -3, -4, -6, -8, -12};

uint16_t Load16(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return bits;
}

float Half(const uint8_t* p) { return HalfToFloat(Load16(p)); }

// 2^(e - 128): half the power of two that an E8M0 exponent stands for.
float HalfOfE8M0(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e
                                    : static_cast<uint32_t>(e - 1) << 23);
}

// Value i of 32 nibbles.
int Nibble(const uint8_t* p, int i) {
  return i < 16 ? p[i] & 15 : p[i - 16] >> 4;
}
// ... with a fifth bit each, 32 bits together.
int FiveBits(const uint8_t* high, const uint8_t* p, int i) {
  return Nibble(p, i) | (high[i / 8] >> (i % 8) & 1) << 4;
}

// ---- blocks of 32: value i of the block at p ----

float Q8_0(const uint8_t* p, int i) {
  return Half(p) * static_cast<float>(static_cast<int8_t>(p[2 + i]));
}
float Q4_0(const uint8_t* p, int i) {
  return Half(p) * static_cast<float>(Nibble(p + 2, i) - 8);
}
float Q4_1(const uint8_t* p, int i) {
  return Half(p) * static_cast<float>(Nibble(p + 4, i)) + Half(p + 2);
}
float Q5_0(const uint8_t* p, int i) {
  return Half(p) * static_cast<float>(FiveBits(p + 2, p + 6, i) - 16);
}
float Q5_1(const uint8_t* p, int i) {
  return Half(p) * static_cast<float>(FiveBits(p + 4, p + 8, i)) + Half(p + 2);
}
float Iq4Nl(const uint8_t* p, int i) {
  return Half(p) * static_cast<float>(kIq4Values[Nibble(p + 2, i)]);
}
float Mxfp4(const uint8_t* p, int i) {
  return HalfOfE8M0(p[0]) * static_cast<float>(kFp4Values[Nibble(p + 1, i)]);
}

// ---- blocks of 256 ----

// Two bits of value i: bytes of a half of 128 values, four parts in a byte.
int TwoBits(const uint8_t* p, int i) {
  return p[32 * (i / 128) + i % 32] >> 2 * (i / 32 % 4) & 3;
}
// One bit of value i: 32 bytes, eight parts in a byte.
int OneBit(const uint8_t* p, int i) { return p[i % 32] >> i / 32 & 1; }
// Four bits of value i: bytes of 64 values, two parts in a byte.
int FourBits(const uint8_t* p, int i) {
  return p[32 * (i / 64) + i % 32] >> 4 * (i / 32 % 2) & 15;
}

// [16 scales of 4 bits with 16 minima above][64 bytes of 2 bits][d][dmin]
float Q2_K(const uint8_t* p, int i) {
  const float scale = Half(p + 80) * static_cast<float>(p[i / 16] & 15);
  const float min = Half(p + 82) * static_cast<float>(p[i / 16] >> 4);
  return scale * static_cast<float>(TwoBits(p + 16, i)) - min;
}

// [32 bytes of 1 bit][64 bytes of 2 bits][12 bytes: 16 scales of 6 bits][d].
// Scale s: low 4 bits in the halves of bytes 0…7, high 2 bits in 8…11.
float Q3_K(const uint8_t* p, int i) {
  const int s = i / 16;
  const int low = p[96 + s % 8] >> 4 * (s / 8) & 15;
  const int high = p[104 + s % 4] >> 2 * (s / 4) & 3;
  const float scale =
      Half(p + 108) * static_cast<float>((low | high << 4) - 32);
  const int q = TwoBits(p + 32, i) - (OneBit(p, i) != 0 ? 0 : 4);
  return scale * static_cast<float>(q);
}

// The 12 bytes of Q4_K and Q5_K: 8 scales and 8 minima of 6 bits. Those of
// parts 0…3 fill bytes 0…3 and 4…7 but for their upper two bits, which are the
// upper bits of parts 4…7; the lower four of these share bytes 8…11.
std::array<int, 2> ScaleAndMin(const uint8_t* p, int part) {
  if (part < 4) return {p[part] & 63, p[part + 4] & 63};
  return {(p[part + 4] & 15) | (p[part - 4] >> 6) << 4,
          (p[part + 4] >> 4) | (p[part] >> 6) << 4};
}
float WithScaleAndMin(const uint8_t* p, int i, int q) {
  const auto [sc, mn] = ScaleAndMin(p + 4, i / 32);
  const float scale = Half(p) * static_cast<float>(sc);
  const float min = Half(p + 2) * static_cast<float>(mn);
  return scale * static_cast<float>(q) - min;
}
// [d][dmin][12 bytes][128 bytes of 4 bits]
float Q4_K(const uint8_t* p, int i) {
  return WithScaleAndMin(p, i, FourBits(p + 16, i));
}
// [d][dmin][12 bytes][32 bytes of 1 bit][128 bytes of 4 bits]
float Q5_K(const uint8_t* p, int i) {
  return WithScaleAndMin(p, i, FourBits(p + 48, i) | OneBit(p + 16, i) << 4);
}

// [128 bytes of 4 bits][64 bytes of 2 bits][16 int8 scales][d]. The low four
// bits of a half's 128 values: 64 bytes, values 64 apart in one byte.
float Q6_K(const uint8_t* p, int i) {
  const int low = p[64 * (i / 128) + i % 64] >> 4 * (i / 64 % 2) & 15;
  const int q = (low | TwoBits(p + 128, i) << 4) - 32;
  const float scale =
      Half(p + 208) * static_cast<float>(static_cast<int8_t>(p[192 + i / 16]));
  return scale * static_cast<float>(q);
}

// [d][8 x 2 upper bits][8 x 4 lower bits of scales][parts of 16 bytes]
float Iq4Xs(const uint8_t* p, int i) {
  const int part = i / 32;
  const int low = p[4 + part / 2] >> 4 * (part % 2) & 15;
  const int high = Load16(p + 2) >> 2 * part & 3;
  const float scale = Half(p) * static_cast<float>((low | high << 4) - 32);
  return scale *
         static_cast<float>(kIq4Values[Nibble(p + 8 + 16 * part, i % 32)]);
}

// ---- floats ----

float F32(const uint8_t* p, int) {
  float value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
float F16(const uint8_t* p, int) { return Half(p); }
float BF16(const uint8_t* p, int) { return BFloat16ToFloat(Load16(p)); }

// A loop for each type, so that the compiler sees through the call.
template <float (*kValueOf)(const uint8_t* block, int i), int kValues>
void Row(const uint8_t* p, int64_t block_bytes, int64_t k, float* out) {
  for (int64_t at = 0; at < k; at += kValues, p += block_bytes) {
    for (int i = 0; i < kValues; ++i) out[at + i] = kValueOf(p, i);
  }
}

using RowOf = void (*)(const uint8_t*, int64_t, int64_t, float*);

RowOf FindRow(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
      return Row<F32, 1>;
    case GgmlType::kF16:
      return Row<F16, 1>;
    case GgmlType::kBF16:
      return Row<BF16, 1>;
    case GgmlType::kQ8_0:
      return Row<Q8_0, 32>;
    case GgmlType::kQ4_0:
      return Row<Q4_0, 32>;
    case GgmlType::kQ4_1:
      return Row<Q4_1, 32>;
    case GgmlType::kQ5_0:
      return Row<Q5_0, 32>;
    case GgmlType::kQ5_1:
      return Row<Q5_1, 32>;
    case GgmlType::kQ2_K:
      return Row<Q2_K, 256>;
    case GgmlType::kQ3_K:
      return Row<Q3_K, 256>;
    case GgmlType::kQ4_K:
      return Row<Q4_K, 256>;
    case GgmlType::kQ5_K:
      return Row<Q5_K, 256>;
    case GgmlType::kQ6_K:
      return Row<Q6_K, 256>;
    case GgmlType::kIQ4_NL:
      return Row<Iq4Nl, 32>;
    case GgmlType::kIQ4_XS:
      return Row<Iq4Xs, 256>;
    case GgmlType::kMXFP4:
      return Row<Mxfp4, 32>;
    default:
      return nullptr;
  }
}

}  // namespace

bool DequantizeRow(GgmlType type, const void* row, int64_t k, float* out) {
  const RowOf fill = FindRow(type);
  if (fill == nullptr) return false;
  fill(static_cast<const uint8_t*>(row), InfoOf(type).block_bytes, k, out);
  return true;
}

}  // namespace millrace::models
