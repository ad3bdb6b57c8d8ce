#include "models/llm/cpu/linear.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "models/cpu/isa.h"
#include "models/memory/huge_buffer.h"

namespace millrace::models {
namespace {

constexpr int64_t kInputs = 96;
constexpr int64_t kOutputs = 200;
constexpr int32_t kRows = 19;

class CpuLinearTest : public testing::TestWithParam<const char*> {};

TEST_P(CpuLinearTest, BitsDoNotDependOnThePasses) {
  const StatusOr<const KernelTable*> kernels = ChooseKernels(GetParam());
  if (!kernels.ok()) GTEST_SKIP() << kernels.status().ToString();
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> weights(kOutputs * kInputs);
  for (float& w : weights) w = normal(random);
  ActBuffer act;
  act.Allocate(kRows, kInputs);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < kInputs; ++i) act.f32(row)[i] = normal(random);
    (*kernels)->quantize_row(act.f32(row), kInputs, act.q8(row));
  }
  for (const std::optional<GgmlType> type :
       {std::optional<GgmlType>(), std::optional(GgmlType::kQ4_1),
        std::optional(GgmlType::kQ8_0)}) {
    CpuLinear linear(kInputs, kOutputs, **kernels, false, Rounding::kOnce);
    linear.AddRows({.type = GgmlType::kF32,
                    .data = reinterpret_cast<std::byte*>(weights.data()),
                    .row_bytes = kInputs * 4,
                    .num_rows = kOutputs,
                    .k = kInputs,
                    .quantize = type});
    StatusOr<HugeBuffer> memory =
        HugeBuffer::Allocate(linear.packed_bytes(), false, "test");
    ASSERT_TRUE(memory.ok());
    linear.Place(memory->data());
    for (int64_t g = 0; g < linear.num_groups(); ++g) linear.PackGroup(g);
    const auto run = [&](int64_t pass_bytes) {
      std::vector<float> y(kRows * kOutputs, -1);
      linear.set_pass_bytes(pass_bytes);
      linear.Run(0, kOutputs, act, 0, kRows, y.data(), kOutputs);
      return y;
    };
    const std::vector<float> whole = run(int64_t{1} << 30);
    EXPECT_EQ(run(1), whole);
    EXPECT_EQ(run(5000), whole);
    EXPECT_NE(whole.back(), -1);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CpuLinearTest,
                         testing::Values("scalar", "avx2", "avxvnni",
                                         "avx512vnni", "avx512bf16", "neon",
                                         "neondot", "neoni8mm"));

}  // namespace
}  // namespace millrace::models
