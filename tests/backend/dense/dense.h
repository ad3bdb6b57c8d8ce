// What the tests of the dense kernels share: one test instance for each table,
// which skips by name where the machine lacks the instructions.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "models/cpu/graph_kernels.h"
#include "models/cpu/isa.h"
#include "tests/backend/kernels/tables.h"

namespace millrace::models {

inline const DenseTable& ScalarTable() { return *ScalarDense(); }

class DenseTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto table = ChooseDense(GetParam());
    if (!table.ok()) GTEST_SKIP() << table.status().ToString();
    table_ = *table;
    ASSERT_STREQ(table_->name, GetParam());
  }
  const DenseTable& table() const { return *table_; }

 private:
  const DenseTable* table_ = nullptr;
};

#define INSTANTIATE_DENSE_TESTS(suite)                                   \
  INSTANTIATE_TEST_SUITE_P(                                              \
      Isa, suite, ::testing::Values("scalar", "avx2", "avx512", "neon"), \
      [](const auto& test) { return std::string(test.param); })

inline int64_t Panels(const DenseProducts& t, int64_t n) {
  return (n + t.panel - 1) / t.panel;
}

// "" when equal in every bit, or both NaN; else where the first difference is.
inline std::string Difference(const float* got, const float* want, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (Bits(got[i]) == Bits(want[i])) continue;
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    return "element " + std::to_string(i) + " is " + std::to_string(got[i]) +
           " but should be " + std::to_string(want[i]);
  }
  return "";
}

// Packs a whole w[n][k] for a table.
inline void PackAll(const DenseProducts& t, const Floats& w, int64_t n,
                    int64_t k, Floats& packed) {
  t.pack(w.data(), n, k, {.n = k, .k = 1}, 0, Panels(t, n), packed.data());
}

}  // namespace millrace::models
