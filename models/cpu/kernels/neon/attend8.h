// The vectors of NEON as kernels/attention.h wants them: 6 rows x 2 vectors, or
// few rows x 4, are 24 of 32 registers. Anonymous namespace.
#pragma once

#include "models/cpu/kernels/neon/dot.h"
#include "models/cpu/kernels/neon/head8.h"

// After the file that defines ScalesOf and QuantizeHead.
#include "models/cpu/kernels/attention.h"

namespace millrace::models {
namespace {

struct NeonAttend : Neon8 {
  static constexpr int kAccumulators = 12;
  static constexpr int64_t kAheadBytes = 16384;
  static constexpr int kIntRows = 3;

  static F Broadcast(const float* p) {
    return {vld1q_dup_f32(p), vld1q_dup_f32(p)};
  }
  static F FromHalf(const uint16_t* p) { return OfHalves(vld1q_u16(p)); }
  static F FromInt8(const int8_t* p) { return FloatsOfInt8(p); }

  static I LoadKeys(const int8_t* p) {
    return {vreinterpretq_u32_s8(vld1q_s8(p)),
            vreinterpretq_u32_s8(vld1q_s8(p + 16))};
  }
  static I DotStart(int32_t /*sum*/) { return SetBits(0); }
  static I Dot(I acc, I k, const int8_t* four) {
    const Bytes8x4 keys = {vreinterpretq_s8_u32(k.a),
                           vreinterpretq_s8_u32(k.b)};
    return DotFours(acc, keys, Broadcast4(four));
  }
  static F Keep(Mask mask, F x, F y) { return Select(mask, x, y); }
  using Sums = Floats8;
  static Sums NoSums() { return Zero(); }
  static Sums AddLanes(Sums l, F x) { return Add(l, x); }
  static float SumOf(Sums l) { return LaneSum(l); }
  static float GreatestLane(F x) { return LaneMax(x); }
};

}  // namespace
}  // namespace millrace::models
