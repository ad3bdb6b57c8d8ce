// How a device wants the matrices of LoRA adapters packed (lora_packing.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "config/base/status.h"
#include "models/cpu/llm_kernels.h"

namespace millrace::models {

class LoraStore;  // lora_store.h

// Numbers that adapters are kept in. Floats are multiplied by f32 rows, int8
// by rows that are rounded to int8, too.
enum class LoraDtype : uint8_t { kF16, kBF16, kF32, kInt8 };

// As the setting lora_dtype names it: "f16".
const char* NameOf(LoraDtype dtype);
// INVALID_ARGUMENT for what does not exist; auto is `automatic`.
StatusOr<LoraDtype> LoraDtypeOf(const std::string& setting,
                                LoraDtype automatic);

// Of int8: values that share a scale, rows of B in a tile, and how many outputs
// may share a row; see lora_packing.h.
inline constexpr int32_t kLoraBlock = 32;
inline constexpr int32_t kLoraTile = 16;
inline constexpr int32_t kMaxOutputsARow = 4;

inline int32_t OutputsARow(int32_t rank) {
  return rank <= 8 ? kMaxOutputsARow : rank <= 16 ? 2 : 1;
}
// `values` up to the end of their last block.
inline int64_t LoraBlocks(int64_t values) {
  return (values + kLoraBlock - 1) / kLoraBlock * kLoraBlock;
}

struct LoraPacking {
  const KernelTable* kernels = ScalarKernels();
  LoraDtype dtype = LoraDtype::kF16;
  bool huge_pages = false;
  // A device's with memory of its own, which then packs them in its own way;
  // null: they are packed for `kernels`.
  std::shared_ptr<LoraStore> store = nullptr;
};

}  // namespace millrace::models
