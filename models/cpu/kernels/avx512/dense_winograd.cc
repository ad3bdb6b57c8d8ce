// 3 x 3 convolutions by Winograd's way, sixteen channels at a time.

#include "models/cpu/kernels/avx512/dense_vec16.h"
#include "models/cpu/kernels/dense/parts.h"
#include "models/cpu/kernels/dense/winograd.h"

namespace millrace::models {

template <>
void DenseParts<Avx512Isa>::WinogradIn(const WinogradInput& args) {
  Winograd<Vec16>::In(args);
}
template <>
void DenseParts<Avx512Isa>::WinogradOut(const WinogradOutput& args) {
  Winograd<Vec16>::Out(args);
}

}  // namespace millrace::models
