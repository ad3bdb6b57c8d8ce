// Stands in for the tables above AVX2, in builds for sanitizers and where the
// compiler has no such target.

#include "models/cpu/graph_int8_kernels.h"
#include "models/cpu/graph_kernels.h"
#include "models/cpu/llm_kernels.h"

namespace millrace::models {

const KernelTable* AvxVnniKernels() { return nullptr; }
const KernelTable* Avx512VnniKernels() { return nullptr; }
const KernelTable* Avx512Bf16Kernels() { return nullptr; }
const KernelTable* AmxKernels() { return nullptr; }

const DenseTable* Avx512Dense() { return nullptr; }
const DenseProducts* Avx512Bf16Products() { return nullptr; }
const DenseProducts* AmxBf16Products() { return nullptr; }

const Int8Table* AvxVnniInt8() { return nullptr; }
const Int8Table* Avx512VnniInt8() { return nullptr; }
const Int8Table* Avx512VbmiInt8() { return nullptr; }
const Int8Table* AmxInt8() { return nullptr; }

}  // namespace millrace::models
