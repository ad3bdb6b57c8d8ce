// Attention of one head over the products of this table, eight values at a
// time.

#include "models/cpu/kernels/dense/attention.h"
#include "models/cpu/kernels/dense/parts.h"
#include "models/cpu/kernels/neon/vec8.h"

namespace millrace::models {
namespace {

using Heads = DenseAttention<Neon8, AttentionProducts<NeonIsa, 16, 1>>;

}  // namespace

template <>
int64_t DenseParts<NeonIsa>::AttentionScratchFloats(int64_t d, int64_t dv) {
  return Heads::ScratchFloats(d, dv);
}
template <>
void DenseParts<NeonIsa>::Attention(const AttentionArgs& args) {
  Heads::Run(args);
}

}  // namespace millrace::models
