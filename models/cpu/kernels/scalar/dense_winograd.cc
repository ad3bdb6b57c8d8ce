// 3 x 3 convolutions by Winograd's way, one value at a time.

#include "models/cpu/kernels/dense/parts.h"
#include "models/cpu/kernels/dense/winograd.h"
#include "models/cpu/kernels/scalar/vec1.h"

namespace millrace::models {

template <>
void DenseParts<ScalarIsa>::WinogradIn(const WinogradInput& args) {
  Winograd<Vec1>::In(args);
}
template <>
void DenseParts<ScalarIsa>::WinogradOut(const WinogradOutput& args) {
  Winograd<Vec1>::Out(args);
}

}  // namespace millrace::models
