// The two passes over a row of logits that sampling needs.

#include "models/cpu/kernels/neon/parts.h"
#include "models/cpu/kernels/neon/vec8.h"

namespace millrace::models::neon {
namespace {

using V = Neon8;

}  // namespace

float Max(const float* x, int64_t n) {
  const Floats8 lowest = V::Set(-__builtin_inff());
  Floats8 greatest = lowest;
  V::Each(n, [&](int64_t i, int64_t left) {
    const Floats8 v = V::LoadFirst(x + i, left);
    greatest = V::Max(V::Select(V::First(left), v, lowest), greatest);
  });
  return V::LaneMax(greatest);
}

double SumExp(const float* x, int64_t n, float offset, float scale,
              float* out) {
  float64x2_t lanes[4] = {};  // 2 i and 2 i + 1 in lanes[i]
  V::Each(n, [&](int64_t i, int64_t left) {
    const Floats8 v = V::LoadFirst(x + i, left);
    const Floats8 e = V::Exp(V::Mul(V::Sub(v, V::Set(offset)), V::Set(scale)));
    const Floats8 term = V::Select(V::First(left), e, V::Zero());
    lanes[0] = vaddq_f64(lanes[0], vcvt_f64_f32(vget_low_f32(term.a)));
    lanes[1] = vaddq_f64(lanes[1], vcvt_high_f64_f32(term.a));
    lanes[2] = vaddq_f64(lanes[2], vcvt_f64_f32(vget_low_f32(term.b)));
    lanes[3] = vaddq_f64(lanes[3], vcvt_high_f64_f32(term.b));
    if (out != nullptr) V::StoreFirst(out + i, left, e);
  });
  const float64x2_t two =
      vaddq_f64(vaddq_f64(lanes[0], lanes[2]), vaddq_f64(lanes[1], lanes[3]));
  return vgetq_lane_f64(two, 0) + vgetq_lane_f64(two, 1);
}

}  // namespace millrace::models::neon
