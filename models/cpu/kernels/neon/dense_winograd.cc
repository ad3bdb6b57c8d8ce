// 3 x 3 convolutions by Winograd's way, eight channels at a time.

#include "models/cpu/kernels/dense/parts.h"
#include "models/cpu/kernels/dense/winograd.h"
#include "models/cpu/kernels/neon/vec8.h"

namespace millrace::models {

template <>
void DenseParts<NeonIsa>::WinogradIn(const WinogradInput& args) {
  Winograd<Neon8>::In(args);
}
template <>
void DenseParts<NeonIsa>::WinogradOut(const WinogradOutput& args) {
  Winograd<Neon8>::Out(args);
}

}  // namespace millrace::models
