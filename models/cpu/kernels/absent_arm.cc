// Stands in for the tables of Arm where the compiler has no such target.

#include "models/cpu/arm_kernels.h"

namespace millrace::models {

const KernelTable* NeonKernels() { return nullptr; }
const KernelTable* NeonDotKernels() { return nullptr; }
const KernelTable* NeonI8mmKernels() { return nullptr; }

const DenseTable* NeonDense() { return nullptr; }

const Int8Table* NeonInt8() { return nullptr; }
const Int8Table* NeonDotInt8() { return nullptr; }
const Int8Table* NeonI8mmInt8() { return nullptr; }

}  // namespace millrace::models
