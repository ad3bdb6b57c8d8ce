// The int8 kernels with usdot.

#include "models/cpu/kernels/dense_int8/define.h"
#include "models/cpu/kernels/neon/int8_vec8.h"

namespace millrace::models {
namespace {

struct Shape : Int8Neon8 {
  static constexpr int kRows = 6;

  static I Dot(I acc, I x, I w) {
    return {AddProducts(acc.a, x.a, w.a), AddProducts(acc.b, x.b, w.b)};
  }
  static I DotTaps(I acc, I x, I w) { return Dot(acc, x, w); }

 private:
  static uint32x4_t AddProducts(uint32x4_t acc, uint32x4_t x, uint32x4_t w) {
    return vreinterpretq_u32_s32(vusdotq_s32(vreinterpretq_s32_u32(acc),
                                             vreinterpretq_u8_u32(x),
                                             vreinterpretq_s8_u32(w)));
  }
};

}  // namespace

MILLRACE_DEFINE_INT8(NeonI8mmBytes, Shape)

}  // namespace millrace::models
