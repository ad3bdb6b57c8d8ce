// A kernel table whose prompt_attend is the AMX kernel over emulated tiles; all
// else is AVX-512 BF16, which the machine must have.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "models/cpu/llm_kernels.h"

namespace millrace::models {

// In prompt_attention_emulated.cc. False when a tile instruction would have
// been a fault, or when tiles were not given back.
int64_t EmulatedPromptAttendScratchFloats(int32_t num_rows, int32_t head_dim);
bool EmulatedPromptAttend(const AttendArgs& args);

inline KernelTable EmulatedPromptKernels() {
  KernelTable table = *Avx512Bf16Kernels();
  table.name = "amx_emulated";
  table.prompt_attend_scratch_floats = EmulatedPromptAttendScratchFloats;
  table.prompt_attend = [](const AttendArgs& args) {
    EXPECT_TRUE(EmulatedPromptAttend(args));
  };
  return table;
}

}  // namespace millrace::models
