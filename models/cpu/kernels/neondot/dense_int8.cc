// The int8 kernels with sdot, whose bytes both have a sign: activations go in
// less 128, and what the weights miss by that comes back.

#include "models/cpu/kernels/dense_int8/define.h"
#include "models/cpu/kernels/neon/int8_vec8.h"

namespace millrace::models {
namespace {

struct Shape : Int8Neon8 {
  static constexpr int kRows = 6;

  static I Four(const uint8_t* p) { return Moved(Int8Neon8::Four(p)); }
  static I Dot(I acc, I x, I w) {
    return {AddProducts(acc.a, x.a, w.a), AddProducts(acc.b, x.b, w.b)};
  }
  static I DotMoved(I acc, I w) { return Dot(acc, V::SetBits(0x80808080u), w); }
  static I DotTaps(I acc, I x, I w) {
    return V::SubInts(Dot(acc, Moved(x), w), DotMoved(V::SetBits(0), w));
  }

 private:
  static I Moved(I x) { return V::Xor(x, V::SetBits(0x80808080u)); }
  static uint32x4_t AddProducts(uint32x4_t acc, uint32x4_t x, uint32x4_t w) {
    return vreinterpretq_u32_s32(vdotq_s32(vreinterpretq_s32_u32(acc),
                                           vreinterpretq_s8_u32(x),
                                           vreinterpretq_s8_u32(w)));
  }
};

}  // namespace

MILLRACE_DEFINE_INT8(NeonDotBytes, Shape)

}  // namespace millrace::models
