// Attention of prompts over emulated tiles. Compiled for AVX-512 BF16, so
// nothing here comes from a header whose functions a linker may share with the
// rest of the program.

#include "models/cpu/llm_kernels.h"

#if defined(__x86_64__)
#include "models/cpu/kernels/amx/attention.h"
#include "tests/backend/kernels/emulated_tiles.h"
#endif

namespace millrace::models {

// Declared in prompt_attention_emulated.h, whose other contents must not be
// compiled here.
#if defined(__x86_64__)
int64_t EmulatedPromptAttendScratchFloats(int32_t num_rows, int32_t head_dim) {
  return PromptAttention<EmulatedTiles>::ScratchFloats(num_rows, head_dim);
}
bool EmulatedPromptAttend(const AttendArgs& args) {
  EmulatedTiles tiles;
  PromptAttention<EmulatedTiles>::Attend(tiles, args);
  return !tiles.fault && !tiles.configured;
}
#else
int64_t EmulatedPromptAttendScratchFloats(int32_t, int32_t) { return 0; }
bool EmulatedPromptAttend(const AttendArgs&) { return false; }
#endif

}  // namespace millrace::models
