// Stands in for the tables of AVX2 where the compiler has no such target.

#include "models/cpu/graph_int8_kernels.h"
#include "models/cpu/graph_kernels.h"
#include "models/cpu/llm_kernels.h"

namespace millrace::models {

const KernelTable* Avx2Kernels() { return nullptr; }
const DenseTable* Avx2Dense() { return nullptr; }
const Int8Table* Avx2Int8() { return nullptr; }

}  // namespace millrace::models
