// Eight lanes of bytes and integers as kernels/dense_int8/gemm.h wants them,
// but for the product. Anonymous namespace.
#pragma once

#include "models/cpu/kernels/neon/vec8.h"

namespace millrace::models {
namespace {

struct Int8Neon8 {
  using V = Neon8;
  using I = Words8;
  using F = Floats8;
  static constexpr int kVectors = 2;
  static constexpr int64_t kBlockBytes = 160 << 10;
  static constexpr bool kHalves = false;
  static constexpr int64_t kFewPanels = 8;
  static constexpr bool kPairs = false;
  static constexpr int64_t kRawBytes = 16;

  static I LoadInts(const int32_t* p, int64_t n) {
    if (n >= 8) {
      return {vreinterpretq_u32_s32(vld1q_s32(p)),
              vreinterpretq_u32_s32(vld1q_s32(p + 4))};
    }
    int32_t lanes[8] = {};
    for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
    return LoadInts(lanes, 8);
  }
  static void StoreInts(int32_t* p, I v) {
    vst1q_s32(p, vreinterpretq_s32_u32(v.a));
    vst1q_s32(p + 4, vreinterpretq_s32_u32(v.b));
  }
  static I ToInts(F v) { return V::ToInts(v); }
  static I Four(const uint8_t* p) {
    uint32_t bytes;
    __builtin_memcpy(&bytes, p, 4);
    return V::SetBits(bytes);
  }
  static I Weights(const int8_t* p) {
    return {vreinterpretq_u32_s8(vld1q_s8(p)),
            vreinterpretq_u32_s8(vld1q_s8(p + 16))};
  }
  static F LoadBytes(const uint8_t* p, int64_t n) {
    uint8_t lanes[8] = {};
    if (n < 8) {
      for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
      p = lanes;
    }
    const uint16x8_t words = vmovl_u8(vld1_u8(p));
    return V::ToFloat({vmovl_u16(vget_low_u16(words)), vmovl_high_u16(words)});
  }
  static void StoreBytes(uint8_t* p, int64_t n, F v, int32_t zero) {
    const uint8x8_t bytes = Bytes(ToInts(v), zero);
    if (n >= 8) return vst1_u8(p, bytes);
    StoreRaw(p, n, vcombine_u8(bytes, bytes));
  }
  static void Lookup(const uint8_t* table, const uint8_t* x, int64_t n,
                     uint8_t* y) {
    for (int64_t i = 0; i < n; i += kRawBytes) {
      StoreRaw(y + i, n - i, LookupRaw(table, LoadRaw(x + i, n - i)));
    }
  }

  using Half = uint8x16_t;
  static Half PackHalf(I a, I b, int32_t zero) {
    return vcombine_u8(Bytes(a, zero), Bytes(b, zero));
  }
  static void StoreHalf(uint8_t* p, int64_t n, Half v) { StoreRaw(p, n, v); }
  struct Rows {
    Half of[2];
  };
  static Rows PackRows(const I (&q)[2][2], int32_t zero) {
    return {
        {PackHalf(q[0][0], q[0][1], zero), PackHalf(q[1][0], q[1][1], zero)}};
  }
  static void StoreRow0(uint8_t* p, int64_t n, const Rows& v) {
    StoreRaw(p, n, v.of[0]);
  }
  static void StoreRow1(uint8_t* p, int64_t n, const Rows& v) {
    StoreRaw(p, n, v.of[1]);
  }
  template <int kN>
  static void LookupRows(const uint8_t* table, Rows (&v)[kN]) {
    for (Rows& rows : v) {
      for (Half& half : rows.of) half = LookupRaw(table, half);
    }
  }

  struct Taps {
    uint8x16_t a, b;  // values 0…15, 16…31
  };
  static constexpr int kTapRows = 4;
  static Taps NoTaps() { return {ZeroRaw(), ZeroRaw()}; }
  static Taps LoadTaps(const uint8_t* p) {
    return {vld1q_u8(p), vld1q_u8(p + 16)};
  }
  static void StoreTaps(uint8_t* p, int64_t n, Taps v) {
    StoreRaw(p, n, v.a);
    if (n > 16) StoreRaw(p + 16, n - 16, v.b);
  }
  static void Interleave(const Taps (&taps)[4], I (&x)[4]) {
    uint32x4_t low[4];
    uint32x4_t high[4];
    Weave(taps[0].a, taps[1].a, taps[2].a, taps[3].a, low);
    Weave(taps[0].b, taps[1].b, taps[2].b, taps[3].b, high);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) x[v] = {low[v], high[v]};
  }
  static void PutTaps(const int8_t (&w)[4], int8_t* p) {
    __builtin_memcpy(p, w, 4);
  }
  static Taps PackBytes(const I (&q)[4], int32_t zero) {
    return {Narrow(q[0].a, q[1].a, q[2].a, q[3].a, zero),
            Narrow(q[0].b, q[1].b, q[2].b, q[3].b, zero)};
  }
  static Taps LookupTaps(const uint8_t* table, Taps v) {
    return {LookupRaw(table, v.a), LookupRaw(table, v.b)};
  }

  static uint8x16_t ZeroRaw() { return vdupq_n_u8(0); }
  static uint8x16_t LoadRaw(const uint8_t* p, int64_t n) {
    if (n >= kRawBytes) return vld1q_u8(p);
    uint8_t buffer[kRawBytes] = {};
    for (int64_t i = 0; i < n; ++i) buffer[i] = p[i];
    return vld1q_u8(buffer);
  }
  static void StoreRaw(uint8_t* p, int64_t n, uint8x16_t v) {
    if (n >= kRawBytes) return vst1q_u8(p, v);
    uint8_t buffer[kRawBytes];
    vst1q_u8(buffer, v);
    for (int64_t i = 0; i < n; ++i) p[i] = buffer[i];
  }
  static uint8x16_t Greater(uint8x16_t a, uint8x16_t b) {
    return vmaxq_u8(a, b);
  }

 private:
  // The lowest bytes of v + zero.
  static uint8x8_t Bytes(I v, int32_t zero) {
    const I moved = V::AddInts(v, V::SetBits(static_cast<uint32_t>(zero)));
    return vmovn_u16(vmovn_high_u32(vmovn_u32(moved.a), moved.b));
  }
  static uint8x16_t Narrow(uint32x4_t a, uint32x4_t b, uint32x4_t c,
                           uint32x4_t d, int32_t zero) {
    return PackHalf({a, b}, {c, d}, zero);
  }
  // Vector v gets bytes 4 v + t of all four, one after the other, in lane t.
  static void Weave(uint8x16_t a, uint8x16_t b, uint8x16_t c, uint8x16_t d,
                    uint32x4_t (&x)[4]) {
    const uint16x8_t ab_low = vreinterpretq_u16_u8(vzip1q_u8(a, b));
    const uint16x8_t ab_high = vreinterpretq_u16_u8(vzip2q_u8(a, b));
    const uint16x8_t cd_low = vreinterpretq_u16_u8(vzip1q_u8(c, d));
    const uint16x8_t cd_high = vreinterpretq_u16_u8(vzip2q_u8(c, d));
    x[0] = vreinterpretq_u32_u16(vzip1q_u16(ab_low, cd_low));
    x[1] = vreinterpretq_u32_u16(vzip2q_u16(ab_low, cd_low));
    x[2] = vreinterpretq_u32_u16(vzip1q_u16(ab_high, cd_high));
    x[3] = vreinterpretq_u32_u16(vzip2q_u16(ab_high, cd_high));
  }
  // Four parts of the table; an index beyond one changes nothing.
  static uint8x16_t LookupRaw(const uint8_t* table, uint8x16_t v) {
    uint8x16_t of = vqtbl4q_u8(vld1q_u8_x4(table), v);
#pragma GCC unroll 3
    for (int part = 1; part < 4; ++part) {
      v = vsubq_u8(v, vdupq_n_u8(64));
      of = vqtbx4q_u8(of, vld1q_u8_x4(table + 64 * part), v);
    }
    return of;
  }
};

}  // namespace
}  // namespace millrace::models
