// 3 x 3 convolutions by Winograd's way, eight channels at a time.

#include "models/cpu/kernels/avx2/dense_vec8.h"
#include "models/cpu/kernels/dense/parts.h"
#include "models/cpu/kernels/dense/winograd.h"

namespace millrace::models {

template <>
void DenseParts<Avx2Isa>::WinogradIn(const WinogradInput& args) {
  Winograd<Vec8>::In(args);
}
template <>
void DenseParts<Avx2Isa>::WinogradOut(const WinogradOutput& args) {
  Winograd<Vec8>::Out(args);
}

}  // namespace millrace::models
