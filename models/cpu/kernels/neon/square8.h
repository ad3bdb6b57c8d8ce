// Transposes 8 x 8 floats, as four squares of four. Anonymous namespace.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

namespace millrace::models {
namespace {

struct Square8 {
  static void Run(const float* x, int64_t ld_x, float* y, int64_t ld_y) {
#pragma GCC unroll 2
    for (int r = 0; r < 8; r += 4) {
#pragma GCC unroll 2
      for (int c = 0; c < 8; c += 4) {
        Four(x + r * ld_x + c, ld_x, y + c * ld_y + r, ld_y);
      }
    }
  }

 private:
  static void Four(const float* x, int64_t ld_x, float* y, int64_t ld_y) {
    const float32x4x2_t top = vtrnq_f32(vld1q_f32(x), vld1q_f32(x + ld_x));
    const float32x4x2_t low =
        vtrnq_f32(vld1q_f32(x + 2 * ld_x), vld1q_f32(x + 3 * ld_x));
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const float64x2_t a = vreinterpretq_f64_f32(top.val[i]);
      const float64x2_t b = vreinterpretq_f64_f32(low.val[i]);
      vst1q_f32(y + i * ld_y, vreinterpretq_f32_f64(vzip1q_f64(a, b)));
      vst1q_f32(y + (i + 2) * ld_y, vreinterpretq_f32_f64(vzip2q_f64(a, b)));
    }
  }
};

}  // namespace
}  // namespace millrace::models
