// How a device wants the matrices of LoRA adapters packed (lora_packing.h).
#pragma once

#include "models/cpu/llm_kernels.h"

namespace millrace::models {

struct LoraPacking {
  const KernelTable* kernels = ScalarKernels();
  bool f32 = false;  // else f16, scaled by a power of two
  bool huge_pages = false;
};

}  // namespace millrace::models
