// The int8 kernels without a product of four bytes. A product of two bytes fits
// sixteen bits, with a sign on one side: 255 * -128 = -32640.

#include "models/cpu/kernels/dense_int8/define.h"
#include "models/cpu/kernels/neon/int8_vec8.h"

namespace millrace::models {
namespace {

struct Shape : Int8Neon8 {
  static constexpr int kRows = 4;

  static I Dot(I acc, I x, I w) {
    return {AddProducts(acc.a, x.a, w.a), AddProducts(acc.b, x.b, w.b)};
  }
  static I DotTaps(I acc, I x, I w) { return Dot(acc, x, w); }

 private:
  static uint32x4_t AddProducts(uint32x4_t acc, uint32x4_t x, uint32x4_t w) {
    const uint8x16_t from = vreinterpretq_u8_u32(x);
    const int8x16_t by = vreinterpretq_s8_u32(w);
    const int16x8_t low =
        vmulq_s16(vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(from))),
                  vmovl_s8(vget_low_s8(by)));
    const int16x8_t high = vmulq_s16(vreinterpretq_s16_u16(vmovl_high_u8(from)),
                                     vmovl_high_s8(by));
    const int32x4_t sums = vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high));
    return vaddq_u32(acc, vreinterpretq_u32_s32(sums));
  }
};

}  // namespace

MILLRACE_DEFINE_INT8(NeonBytes, Shape)

}  // namespace millrace::models
