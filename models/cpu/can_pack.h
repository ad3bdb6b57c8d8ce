// Whether a kernel table can pack weights of a format; the scalar one packs
// all.
#pragma once

#include <cstdint>

#include "models/cpu/llm_kernels.h"

namespace millrace::models {

// Of rows with k columns, whole blocks of the format. Thread-safe.
bool CanPack(const KernelTable& kernels, WeightFormat format, int64_t k);

}  // namespace millrace::models
