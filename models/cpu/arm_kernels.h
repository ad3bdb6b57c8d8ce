// The tables of 64-bit Arm; null where the compiler has no such target. Whether
// this machine may run one is isa.h's business.
#pragma once

#include "models/cpu/llm_kernels.h"

namespace millrace::models {

// Armv8.0: vectors of 128 bits (ASIMD, also called NEON).
const KernelTable* NeonKernels();
// With sdot (Armv8.2 and later, HWCAP asimddp).
const KernelTable* NeonDotKernels();

}  // namespace millrace::models
