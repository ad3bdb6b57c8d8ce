// Stands in for the tables of x86 where the compiler has no such target.

#include "models/cpu/llm_kernels.h"

namespace millrace::models {

const KernelTable* Avx2Kernels() { return nullptr; }
const KernelTable* AvxVnniKernels() { return nullptr; }
const KernelTable* Avx512VnniKernels() { return nullptr; }
const KernelTable* Avx512Bf16Kernels() { return nullptr; }
const KernelTable* AmxKernels() { return nullptr; }

}  // namespace millrace::models
