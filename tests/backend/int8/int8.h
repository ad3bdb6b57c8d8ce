// What the tests of the int8 kernels share: one test instance for each table,
// and the epilogue written once more, plainly.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "models/cpu/graph_int8_kernels.h"
#include "models/cpu/isa.h"

namespace millrace::models {

class Int8Test : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto table = ChooseInt8(GetParam());
    if (!table.ok()) GTEST_SKIP() << table.status().ToString();
    table_ = *table;
    ASSERT_STREQ(table_->name, GetParam());
  }
  const Int8Table& table() const { return *table_; }
  // It lives as long as the test.
  void set_table(const Int8Table* table) { table_ = table; }

 private:
  const Int8Table* table_ = nullptr;
};

#define INSTANTIATE_INT8_TESTS(suite)                                        \
  INSTANTIATE_TEST_SUITE_P(                                                  \
      Isa, suite,                                                            \
      ::testing::Values("scalar", "avx2", "avxvnni", "avx512vnni",           \
                        "avx512vbmi", "amx", "neon", "neondot", "neoni8mm"), \
      [](const auto& test) { return std::string(test.param); })

using Bytes = std::vector<uint8_t>;
using Weights = std::vector<int8_t>;

// Aligned as weights and scratch are; a read beyond it is seen
// (guarded_new.cc).
template <typename T>
struct Aligned {
  explicit Aligned(int64_t bytes)
      : data(static_cast<T*>(
            ::operator new(static_cast<size_t>(bytes), kAlignment))) {}
  ~Aligned() { ::operator delete(data, kAlignment); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  static constexpr std::align_val_t kAlignment{64};
  T* data;
};

inline Bytes RandomBytes(std::mt19937& rng, int64_t n) {
  std::uniform_int_distribution<int> any(0, 255);
  Bytes x(static_cast<size_t>(n));
  for (uint8_t& b : x) b = static_cast<uint8_t>(any(rng));
  return x;
}
// Which values weights have: all; mostly those that overflow sums of pairs; or
// small ones, but for a few that are not.
enum class WeightKind { kAll, kExtreme, kSmall };
inline Weights RandomWeights(std::mt19937& rng, int64_t n, WeightKind kind) {
  std::uniform_int_distribution<int> any(-128, 127);
  std::uniform_int_distribution<int> one_of(1, 500);
  Weights w(static_cast<size_t>(n));
  for (int8_t& v : w) {
    const int x = any(rng);
    const bool large = kind == WeightKind::kExtreme
                           ? x % 4 != 0
                           : kind == WeightKind::kSmall && one_of(rng) == 1;
    const int small = kind == WeightKind::kSmall ? x / 6 : x;
    v = static_cast<int8_t>(!large ? small : x < 0 ? -128 : 127);
  }
  return w;
}
inline std::vector<float> RandomFloats(std::mt19937& rng, int64_t n,
                                       float scale) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(rng);
  return x;
}

// A sum's end as graph_int8_kernels.h describes it, for functions that need no
// exp.
inline float Finished(int64_t sum, const Int8Epilogue& e, int64_t row,
                      int64_t n) {
  float v = std::fma(static_cast<float>(sum + e.offset[n]), e.scale[n],
                     e.bias != nullptr ? e.bias[n] : 0.0f);
  if (e.middle_scale != 0) {
    v = std::fma(
        std::min(e.middle_high, std::max(e.middle_low, std::nearbyint(v))),
        e.middle_scale, e.middle_bias != nullptr ? e.middle_bias[n] : 0.0f);
  }
  const auto join = [&] {
    const int64_t at = row * e.ld_residual + n;
    if (e.residual != nullptr) {
      v = std::fma(static_cast<float>(e.residual[at]) - e.residual_zero,
                   e.residual_scale, v);
    }
    if (e.residual_f32 != nullptr) {
      v = std::fma(e.residual_f32[at], e.residual_scale, v);
    }
  };
  if (e.residual_first) join();
  if (e.f == Unary::kRelu) v = std::max(v, 0.0f);
  if (e.f == Unary::kClip) v = std::min(e.b, std::max(e.a, v));
  if (!e.residual_first) join();
  return v;
}
inline uint8_t AsByte(float v, float scale, int32_t zero) {
  const float least = static_cast<float>(-zero);
  const float most = static_cast<float>(255 - zero);
  const float limited = std::min(most, std::max(least, v * scale));
  return static_cast<uint8_t>(static_cast<int>(std::nearbyint(limited)) + zero);
}

}  // namespace millrace::models
