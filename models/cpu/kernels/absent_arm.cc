// Stands in for the tables of Arm where the compiler has no such target.

#include "models/cpu/arm_kernels.h"

namespace millrace::models {

const KernelTable* NeonKernels() { return nullptr; }
const KernelTable* NeonDotKernels() { return nullptr; }

}  // namespace millrace::models
