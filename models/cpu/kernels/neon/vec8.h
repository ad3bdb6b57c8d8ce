// Eight floats in two NEON registers: what the files of neon and neondot share,
// in an anonymous namespace. Eight lanes, because the documented trees have
// eight; two registers of four do what one of AVX2 does. For the bodies under
// kernels/dense, too: compare scalar/vec1.h, which says what each must give.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

namespace millrace::models {
namespace {

struct Floats8 {
  float32x4_t a, b;  // lanes 0…3, 4…7
};
struct Words8 {
  uint32x4_t a, b;
};

struct Neon8 {
  using F = Floats8;
  using I = Words8;
  using Mask = Words8;
  static constexpr int kLanes = 8;

  static F Zero() { return Set(0.0f); }
  static F Set(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
  static F Load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
  static void Store(float* p, F x) {
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
  }
  // Lanes from n on are 0; n may be below 0.
  static F LoadFirst(const float* p, int64_t n) {
    if (n >= kLanes) return Load(p);
    float lanes[kLanes] = {};
    for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
    return Load(lanes);
  }
  static void StoreFirst(float* p, int64_t n, F x) {
    if (n >= kLanes) return Store(p, x);
    float lanes[kLanes];
    Store(lanes, x);
    for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
  }
  static Mask First(int64_t n) {
    static constexpr uint32_t kNumbers[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7};
    const uint32_t clipped = n < 0        ? 0
                             : n > kLanes ? kLanes
                                          : static_cast<uint32_t>(n);
    const uint32x4_t count = vdupq_n_u32(clipped);
    return {vcltq_u32(vld1q_u32(kNumbers), count),
            vcltq_u32(vld1q_u32(kNumbers + 4), count)};
  }

  static F Add(F x, F y) { return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b)}; }
  static F Sub(F x, F y) { return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b)}; }
  static F Mul(F x, F y) { return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b)}; }
  static F Div(F x, F y) { return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b)}; }
  // x * y + z, rounded once.
  static F Fma(F x, F y, F z) {
    return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b)};
  }
  // z - x * y, rounded once.
  static F FmaLess(F x, F y, F z) {
    return {vfmsq_f32(z.a, x.a, y.a), vfmsq_f32(z.b, x.b, y.b)};
  }
  // Not vmaxq_f32, which gives NaN where either is one: here y is given.
  static F Max(F x, F y) { return Select(Less(y, x), x, y); }
  static F Min(F x, F y) { return Select(Less(x, y), x, y); }
  static F Sqrt(F x) { return {vsqrtq_f32(x.a), vsqrtq_f32(x.b)}; }
  static F Floor(F x) { return {vrndmq_f32(x.a), vrndmq_f32(x.b)}; }
  static F Ceil(F x) { return {vrndpq_f32(x.a), vrndpq_f32(x.b)}; }
  static F Round(F x) { return {vrndnq_f32(x.a), vrndnq_f32(x.b)}; }
  static F Abs(F x) { return {vabsq_f32(x.a), vabsq_f32(x.b)}; }
  static F Negate(F x) { return {vnegq_f32(x.a), vnegq_f32(x.b)}; }

  static float FirstLane(F x) { return vgetq_lane_f32(x.a, 0); }
  // Lane j is lane j + kBy, for j below kBy.
  template <int kBy>
  static F Down(F x) {
    if constexpr (kBy == 4) return {x.b, x.a};
    if constexpr (kBy == 2) {
      return {vextq_f32(x.a, x.a, 2), vextq_f32(x.b, x.b, 2)};
    }
    return {vrev64q_f32(x.a), vrev64q_f32(x.b)};
  }
  static Mask Less(F x, F y) {
    return {vcltq_f32(x.a, y.a), vcltq_f32(x.b, y.b)};
  }
  static Mask Equal(F x, F y) {
    return {vceqq_f32(x.a, y.a), vceqq_f32(x.b, y.b)};
  }
  static F Select(Mask m, F x, F y) {
    return {vbslq_f32(m.a, x.a, y.a), vbslq_f32(m.b, x.b, y.b)};
  }

  static I Bits(F x) {
    return {vreinterpretq_u32_f32(x.a), vreinterpretq_u32_f32(x.b)};
  }
  static F OfBits(I x) {
    return {vreinterpretq_f32_u32(x.a), vreinterpretq_f32_u32(x.b)};
  }
  static I SetBits(uint32_t x) { return {vdupq_n_u32(x), vdupq_n_u32(x)}; }
  static I And(I x, I y) { return {vandq_u32(x.a, y.a), vandq_u32(x.b, y.b)}; }
  static I Or(I x, I y) { return {vorrq_u32(x.a, y.a), vorrq_u32(x.b, y.b)}; }
  static I Xor(I x, I y) { return {veorq_u32(x.a, y.a), veorq_u32(x.b, y.b)}; }
  static I AddInts(I x, I y) {
    return {vaddq_u32(x.a, y.a), vaddq_u32(x.b, y.b)};
  }
  static I SubInts(I x, I y) {
    return {vsubq_u32(x.a, y.a), vsubq_u32(x.b, y.b)};
  }
  static I MulInts(I x, I y) {
    return {vmulq_u32(x.a, y.a), vmulq_u32(x.b, y.b)};
  }
  template <int kBits>
  static I Left(I x) {
    return {vshlq_n_u32(x.a, kBits), vshlq_n_u32(x.b, kBits)};
  }
  // Up by `bits`, or down where that is negative.
  static I Shift(I x, int bits) {
    const int32x4_t by = vdupq_n_s32(bits);
    return {vshlq_u32(x.a, by), vshlq_u32(x.b, by)};
  }
  template <int kBits>
  static I RightSigned(I x) {
    return {
        vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(x.a), kBits)),
        vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(x.b), kBits))};
  }
  static F ToFloat(I x) {
    return {vcvtq_f32_s32(vreinterpretq_s32_u32(x.a)),
            vcvtq_f32_s32(vreinterpretq_s32_u32(x.b))};
  }
  // To the nearest, of two as near the even one.
  static I ToInts(F x) {
    return {vreinterpretq_u32_s32(vcvtnq_s32_f32(x.a)),
            vreinterpretq_u32_s32(vcvtnq_s32_f32(x.b))};
  }
  static F Scale(F p, F n) {
    const I whole = ToInts(n);
    const I half = RightSigned<1>(whole);
    return Mul(Mul(p, Power(half)), Power(SubInts(whole, half)));
  }

  static F OfHalves(uint16x8_t halves) {
    const float16x8_t x = vreinterpretq_f16_u16(halves);
    return {vcvt_f32_f16(vget_low_f16(x)), vcvt_high_f32_f16(x)};
  }
  static uint16x8_t ToHalves(F x) {
    return vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.a), x.b));
  }

  // The tree over eight lanes of llm_kernels.h.
  static float LaneSum(F x) {
    const float32x4_t four = vaddq_f32(x.a, x.b);
    const float32x4_t two = vaddq_f32(four, vextq_f32(four, four, 2));
    return vgetq_lane_f32(two, 0) + vgetq_lane_f32(two, 1);
  }
  static float LaneMax(F x) {
    const F four = Max(x, Down<4>(x));
    const F two = Max(four, Down<2>(four));
    return FirstLane(Max(two, Down<1>(two)));
  }

  // The polynomial of llm_kernels.h; compare scalar/numbers.h.
  static F Exp(F x) {
    const F rounder = Set(12582912.0f);
    const Mask below = Less(x, Set(-87.33654f));
    x = Min(Set(88.37626f), x);  // a NaN stays
    const F shifted = Add(Mul(x, Set(1.44269504f)), rounder);
    const F n = Sub(shifted, rounder);
    F r = Fma(n, Set(-0.693359375f), x);
    r = Fma(n, Set(2.12194440e-4f), r);
    F p = Set(1.9875691500e-4f);
    p = Fma(p, r, Set(1.3981999507e-3f));
    p = Fma(p, r, Set(8.3334519073e-3f));
    p = Fma(p, r, Set(4.1665795894e-2f));
    p = Fma(p, r, Set(1.6666665459e-1f));
    p = Fma(p, r, Set(5.0000001201e-1f));
    p = Add(Fma(p, Mul(r, r), r), Set(1.0f));
    p = OfBits(AddInts(Bits(p), Left<23>(Bits(shifted))));
    return Select(below, Zero(), p);
  }

  // body(i, n) for every eight of an array, of which n are there.
  template <class Body>
  static void Each(int64_t n, Body body) {
    for (int64_t i = 0; i < n; i += kLanes) body(i, n - i);
  }

 private:
  static F Power(I e) { return OfBits(Left<23>(AddInts(e, SetBits(127)))); }
};

}  // namespace
}  // namespace millrace::models
