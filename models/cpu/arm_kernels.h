// The tables of 64-bit Arm; null where the compiler has no such target. Whether
// this machine may run one is isa.h's business.
#pragma once

#include "models/cpu/graph_int8_kernels.h"
#include "models/cpu/graph_kernels.h"
#include "models/cpu/llm_kernels.h"

namespace millrace::models {

// Armv8.0: vectors of 128 bits (ASIMD, also called NEON).
const KernelTable* NeonKernels();
const DenseTable* NeonDense();
const Int8Table* NeonInt8();
// With sdot (Armv8.2 and later, HWCAP asimddp).
const KernelTable* NeonDotKernels();
const Int8Table* NeonDotInt8();
// With smmla and usdot as well (Armv8.6 and later, HWCAP2 i8mm).
const KernelTable* NeonI8mmKernels();
const Int8Table* NeonI8mmInt8();

}  // namespace millrace::models
