// The header of a packed block for eight rows. Row r has lane r; see blocks.h
// for the fields and llm_kernels.h for the chains.
#pragma once

#include "models/cpu/kernels/neon/vec8.h"
#include "models/cpu/kernels/packing.h"

namespace millrace::models {
namespace {

template <WeightFormat kFormat>
constexpr int kParts = ShapeOf(kFormat).columns / 32;

// A scale for each half of a part.
template <WeightFormat kFormat>
constexpr bool kHalves =
    kFormat == WeightFormat::kQ2_K || kFormat == WeightFormat::kQ3_K ||
    kFormat == WeightFormat::kQ6_K;

struct PartScales {
  Floats8 d;
  Floats8 m;        // with minima; Q2_K: dmin
  Words8 scale[2];  // kHalves: of half 0 and 1
  Words8 min[2];    // Q2_K: likewise
};

// Where field i of the header stands.
template <WeightFormat kFormat>
struct FieldsAt {
  int64_t at[6];
  constexpr FieldsAt() : at() {
    for (int i = 0; i < 6; ++i) at[i] = Packing<8>::FieldAt(kFormat, i);
  }
};
template <WeightFormat kFormat>
constexpr FieldsAt<kFormat> kFields;

// Header fields of one packed block.
template <WeightFormat kFormat>
class Header {
 public:
  explicit Header(const uint8_t* block) : block_(block) {}

  Floats8 Halves(int field) const {
    return Neon8::OfHalves(vreinterpretq_u16_u8(vld1q_u8(At(field))));
  }
  // Four bytes of each row.
  Words8 Words(int field) const {
    return {vreinterpretq_u32_u8(vld1q_u8(At(field))),
            vreinterpretq_u32_u8(vld1q_u8(At(field) + 16))};
  }
  // Two bytes of each row.
  Words8 Shorts(int field) const {
    const uint16x8_t x = vreinterpretq_u16_u8(vld1q_u8(At(field)));
    return {vmovl_u16(vget_low_u16(x)), vmovl_high_u16(x)};
  }
  // One byte of each row.
  Words8 Bytes(int field) const {
    const uint16x8_t x = vmovl_u8(vld1_u8(At(field)));
    return {vmovl_u16(vget_low_u16(x)), vmovl_high_u16(x)};
  }

 private:
  const uint8_t* At(int field) const {
    return block_ + kFields<kFormat>.at[field];
  }

  const uint8_t* block_;
};

// `count` bits of every word from bit `from` on.
inline Words8 BitsAt(Words8 x, int from, int count) {
  return Neon8::And(Neon8::Shift(x, -from), Neon8::SetBits((1u << count) - 1));
}

// d = 2^(e - 128); the two least exponents give subnormals.
inline Floats8 PowersOfTwo(Words8 e) {
  const Words8 normal = Neon8::Left<23>(Neon8::SubInts(e, Neon8::SetBits(1)));
  const uint32x4_t least = vdupq_n_u32(0x200000);
  const Words8 small = {vshlq_u32(least, vreinterpretq_s32_u32(e.a)),
                        vshlq_u32(least, vreinterpretq_s32_u32(e.b))};
  const uint32x4_t two = vdupq_n_u32(2);
  return Neon8::OfBits({vbslq_u32(vcltq_u32(e.a, two), small.a, normal.a),
                        vbslq_u32(vcltq_u32(e.b, two), small.b, normal.b)});
}

// Q4_K and Q5_K: see ReadScaleMin of blocks.h.
template <WeightFormat kFormat>
inline void ReadScaleMins(const Header<kFormat>& header, PartScales s[8]) {
  using V = Neon8;
  const Floats8 d = header.Halves(0);
  const Floats8 less = V::Negate(header.Halves(1));
  const Words8 a = header.Words(2);
  const Words8 b = header.Words(3);
  const Words8 c = header.Words(4);
  const auto of_part = [&](Words8 first, int part, int nibble) {
    const int byte = 8 * (part % 4);
    if (part < 4) return BitsAt(first, byte, 6);
    return V::Or(BitsAt(c, byte + nibble, 4),
                 V::Left<4>(BitsAt(first, byte + 6, 2)));
  };
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    s[i].d = V::Mul(d, V::ToFloat(of_part(a, i, 0)));
    s[i].m = V::Mul(less, V::ToFloat(of_part(b, i, 4)));
  }
}

template <WeightFormat kFormat>
inline void ReadHeader(const uint8_t* block, PartScales s[kParts<kFormat>]) {
  using V = Neon8;
  const Header<kFormat> header(block);
  if constexpr (kFormat == WeightFormat::kMXFP4) {
    s[0].d = PowersOfTwo(header.Bytes(0));
  } else if constexpr (kParts<kFormat> == 1) {
    s[0].d = header.Halves(0);
    if constexpr (HasMin(kFormat)) s[0].m = header.Halves(1);
  } else if constexpr (HasMin(kFormat)) {
    ReadScaleMins<kFormat>(header, s);
  } else if constexpr (kFormat == WeightFormat::kIQ4_XS) {
    const Floats8 d = header.Halves(0);
    const Words8 high = header.Shorts(1);
    const Words8 low = header.Words(2);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const Words8 ls =
          V::Or(BitsAt(low, 4 * i, 4), V::Left<4>(BitsAt(high, 2 * i, 2)));
      s[i].d = V::Mul(d, V::ToFloat(V::SubInts(ls, V::SetBits(32))));
    }
  } else {
    const Floats8 d = header.Halves(0);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      s[i].d = d;
      if constexpr (kFormat == WeightFormat::kQ2_K) s[i].m = header.Halves(1);
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        const int bit = 16 * (i % 2) + 8 * h;  // of the half's byte in a word
        if constexpr (kFormat == WeightFormat::kQ2_K) {
          const Words8 word = header.Words(2 + i / 2);
          s[i].scale[h] = BitsAt(word, bit, 4);
          s[i].min[h] = BitsAt(word, bit + 4, 4);
        } else if constexpr (kFormat == WeightFormat::kQ3_K) {
          const Words8 low =
              BitsAt(header.Words(1 + i % 4 / 2), bit + 4 * (i / 4), 4);
          const Words8 high = BitsAt(header.Words(3), bit + 2 * (i / 2), 2);
          s[i].scale[h] =
              V::SubInts(V::Or(low, V::Left<4>(high)), V::SetBits(32));
        } else {
          static_assert(kFormat == WeightFormat::kQ6_K);
          s[i].scale[h] =
              V::RightSigned<24>(V::Shift(header.Words(1 + i / 2), 24 - bit));
        }
      }
    }
  }
}

}  // namespace
}  // namespace millrace::models
