// What the kernel tests share: one test instance for each table, which skips by
// name where the machine lacks the instructions; aligned buffers; seeded
// numbers; and comparing bits.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <new>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "models/cpu/isa.h"
#include "models/cpu/llm_kernels.h"

namespace millrace::models {

inline const KernelTable& Scalar() { return *ScalarKernels(); }

class KernelTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    bool known = false;
    for (const IsaChoice& choice : ListKernels()) {
      if (std::string(choice.name) != GetParam()) continue;
      known = true;
      if (!choice.missing.empty()) {
        GTEST_SKIP() << choice.name << " needs: " << choice.missing;
      }
    }
    if (!known) GTEST_SKIP() << GetParam() << " is of another architecture";
    const auto table = ChooseKernels(GetParam());
    ASSERT_TRUE(table.ok()) << table.status().ToString();
    table_ = *table;
  }
  const KernelTable& table() const { return *table_; }
  void set_table(const KernelTable* table) { table_ = table; }

 private:
  const KernelTable* table_ = nullptr;
};

#define INSTANTIATE_KERNEL_TESTS(suite)                                      \
  INSTANTIATE_TEST_SUITE_P(                                                  \
      Isa, suite,                                                            \
      ::testing::Values("scalar", "avx2", "avxvnni", "avx512vnni",           \
                        "avx512bf16", "amx", "neon", "neondot", "neoni8mm"), \
      [](const auto& test) { return std::string(test.param); })

// Exactly as long as asked for, so that a read beyond it is seen
// (guarded_new.cc). Floats begin anywhere, as rows do; the rest at a cache
// line, as pages and packed weights do.
template <typename T>
class Buffer {
 public:
  static constexpr std::align_val_t kAlignment{
      std::is_same_v<T, float> ? alignof(T) : 64};

  explicit Buffer(int64_t size, T fill = T{})
      : size_(size),
        data_(static_cast<T*>(::operator new[](
            static_cast<size_t>(size > 0 ? size : 1) * sizeof(T),
            kAlignment))) {
    for (int64_t i = 0; i < size; ++i) data_[i] = fill;
  }
  ~Buffer() { ::operator delete[](data_, kAlignment); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  int64_t size() const { return size_; }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }

 private:
  int64_t size_;
  T* data_;
};

using Floats = Buffer<float>;

inline void FillNormal(std::mt19937& rng, Floats& x, float scale = 1.0f) {
  std::normal_distribution<float> normal(0.0f, scale);
  for (int64_t i = 0; i < x.size(); ++i) x[i] = normal(rng);
}

// IEEE half; g++ 12 knows it by another name on Arm.
#if defined(__aarch64__)
using Float16 = __fp16;
#else
using Float16 = _Float16;
#endif

inline uint32_t Bits(float x) { return __builtin_bit_cast(uint32_t, x); }

// "" when equal in every bit, else where the first difference stands.
inline std::string BitDifference(const float* got, const float* want,
                                 int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (Bits(got[i]) != Bits(want[i])) {
      return "element " + std::to_string(i) + " is " + std::to_string(got[i]) +
             " but scalar gives " + std::to_string(want[i]);
    }
  }
  return "";
}

// Half the distance from 1 to the next float: the relative error of one
// rounding.
inline constexpr double kUnit = 0x1p-24;

}  // namespace millrace::models
