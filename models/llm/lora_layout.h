// How a device wants the matrices of LoRA adapters packed (lora_packing.h).
#pragma once

#include <memory>

#include "models/cpu/llm_kernels.h"

namespace millrace::models {

class LoraStore;  // lora_store.h

struct LoraPacking {
  const KernelTable* kernels = ScalarKernels();
  bool f32 = false;  // else f16, scaled by a power of two
  bool huge_pages = false;
  // A device's with memory of its own, which then packs them in its own way;
  // null: they are packed for `kernels`.
  std::shared_ptr<LoraStore> store = nullptr;
};

}  // namespace millrace::models
