// A part's products for two tokens at once, where a file is compiled for smmla:
// two rows of weights and two of activations, eight columns each. The sums are
// the exact ones of dot.h. Anonymous namespace.
#pragma once

#include "models/cpu/kernels/neon/dot.h"

namespace millrace::models {
namespace {

#if defined(__ARM_FEATURE_MATMUL_INT8)
// Rows 2 i and 2 i + 1 of a part's half: columns 8 j…8 j + 7 in of[j][i].
struct RowPairs {
  int8x16_t of[2][4];

  // w: fours of columns of eight rows, as UnpackWeights gives them.
  explicit RowPairs(const Bytes8x4 w[4]) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const Bytes8x4 x = w[2 * j];
      const Bytes8x4 y = w[2 * j + 1];
      of[j][0] = Join(vzip1q_s32, x.a, y.a);
      of[j][1] = Join(vzip2q_s32, x.a, y.a);
      of[j][2] = Join(vzip1q_s32, x.b, y.b);
      of[j][3] = Join(vzip2q_s32, x.b, y.b);
    }
  }

  // sums[t] = Σ of w and the sixteen columns of q[t], of eight rows.
  [[gnu::always_inline]] void Dot(const int8_t* const q[2],
                                  Words8 sums[2]) const {
    int32x4_t acc[4] = {};  // lane 2 r + t: row r of the two, token t
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const int8x16_t x =
          vcombine_s8(vld1_s8(q[0] + 8 * j), vld1_s8(q[1] + 8 * j));
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) acc[i] = vmmlaq_s32(acc[i], of[j][i], x);
    }
    sums[0] = {vreinterpretq_u32_s32(vuzp1q_s32(acc[0], acc[1])),
               vreinterpretq_u32_s32(vuzp1q_s32(acc[2], acc[3]))};
    sums[1] = {vreinterpretq_u32_s32(vuzp2q_s32(acc[0], acc[1])),
               vreinterpretq_u32_s32(vuzp2q_s32(acc[2], acc[3]))};
  }

 private:
  template <class Zip>
  static int8x16_t Join(Zip zip, int8x16_t x, int8x16_t y) {
    return vreinterpretq_s8_s32(
        zip(vreinterpretq_s32_s8(x), vreinterpretq_s32_s8(y)));
  }
};
#endif

}  // namespace
}  // namespace millrace::models
