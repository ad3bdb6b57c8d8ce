// The AMX table's matrix code over plain arrays instead of tiles, so that it is
// tested where no CPU has them. The machine needs AVX-512 BF16 nonetheless.
//
//   class Linear : public EmulatedKernelTest {};
//   INSTANTIATE_EMULATED_KERNEL_TESTS(Linear);
#pragma once

#include "tests/backend/kernels/tables.h"

namespace millrace::models {

// As KernelTable::linear; `rest` takes what has no tiles. False when a tile
// instruction would have been a fault: no configuration, or shapes that do not
// fit; or when tiles were not given back.
#if defined(__x86_64__)
bool EmulatedAmxLinear(const KernelTable& rest, const PackedMatrix& w,
                       int64_t group_begin, int64_t group_end,
                       const ActRows& act, int32_t num_rows, float* y,
                       int64_t ld_y);
// As KernelTable::prompt_linear…; `known` gets what prompt_linear returns.
int64_t EmulatedAmxPromptScratchBytes(const PackedMatrix& w, int32_t num_rows);
bool EmulatedAmxPromptLinear(const PackedMatrix& w, int64_t group_begin,
                             int64_t group_end, const ActRows& act,
                             int32_t num_rows, float* y, int64_t ld_y,
                             void* scratch, bool* known);
#else
inline bool EmulatedAmxLinear(const KernelTable&, const PackedMatrix&, int64_t,
                              int64_t, const ActRows&, int32_t, float*,
                              int64_t) {
  return false;
}
inline int64_t EmulatedAmxPromptScratchBytes(const PackedMatrix&, int32_t) {
  return 0;
}
inline bool EmulatedAmxPromptLinear(const PackedMatrix&, int64_t, int64_t,
                                    const ActRows&, int32_t, float*, int64_t,
                                    void*, bool*) {
  return false;
}
#endif

// Knows one table more: "amx_emulated", whose own name is "amx".
class EmulatedKernelTest : public KernelTest {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) != "amx_emulated") return KernelTest::SetUp();
    const auto base = ChooseKernels("avx512bf16");
    if (!base.ok()) GTEST_SKIP() << base.status().ToString();
    emulated_ = **base;
    emulated_.name = "amx";
    emulated_.linear = [](const PackedMatrix& w, int64_t group_begin,
                          int64_t group_end, const ActRows& act,
                          int32_t num_rows, float* y, int64_t ld_y) {
      EXPECT_TRUE(EmulatedAmxLinear(*Avx512Bf16Kernels(), w, group_begin,
                                    group_end, act, num_rows, y, ld_y));
    };
    emulated_.prompt_linear_scratch_bytes = EmulatedAmxPromptScratchBytes;
    emulated_.prompt_linear = [](const PackedMatrix& w, int64_t group_begin,
                                 int64_t group_end, const ActRows& act,
                                 int32_t num_rows, float* y, int64_t ld_y,
                                 void* scratch) {
      bool known = false;
      EXPECT_TRUE(EmulatedAmxPromptLinear(w, group_begin, group_end, act,
                                          num_rows, y, ld_y, scratch, &known));
      return known;
    };
    set_table(&emulated_);
  }

 private:
  KernelTable emulated_;
};

#define INSTANTIATE_EMULATED_KERNEL_TESTS(suite)          \
  INSTANTIATE_TEST_SUITE_P(                               \
      Emulated, suite, ::testing::Values("amx_emulated"), \
      [](const auto& test) { return std::string(test.param); })

}  // namespace millrace::models
