// What the tests of bf16 products share: one test instance for each table,
// which skips by name where the machine lacks the instructions, and one for the
// tiles of AMX in an emulation, which needs AVX-512 BF16 alone.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "models/cpu/graph_kernels.h"
#include "models/cpu/isa.h"

namespace millrace::models {

// Null where the compiler has no such target. What the CPU would fault on is a
// trap.
#if defined(__x86_64__)
const DenseProducts* EmulatedAmxProducts();
#else
inline const DenseProducts* EmulatedAmxProducts() { return nullptr; }
#endif

// Null where this machine lacks the instructions.
inline const DenseProducts* Bf16ProductsOf(const std::string& name) {
  const DenseProducts* pairs = FindBf16Products("avx512bf16");
  if (name == "avx512bf16") return pairs;
  if (name == "amx_emulated") {
    return pairs == nullptr ? nullptr : EmulatedAmxProducts();
  }
  const DenseProducts* tiles = FindBf16Products(name);
  return tiles == AmxBf16Products() ? tiles : nullptr;
}

class Bf16Test : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    products_ = Bf16ProductsOf(GetParam());
    if (products_ == nullptr) {
      GTEST_SKIP() << "this CPU cannot run " << GetParam();
    }
  }
  const DenseProducts& products() const { return *products_; }
  // Whether they follow the chain of tiles.
  bool tiles() const { return std::string(GetParam()) != "avx512bf16"; }

 private:
  const DenseProducts* products_ = nullptr;
};

#define INSTANTIATE_BF16_TESTS(suite)                                     \
  INSTANTIATE_TEST_SUITE_P(                                               \
      Isa, suite, ::testing::Values("avx512bf16", "amx", "amx_emulated"), \
      [](const auto& test) { return std::string(test.param); })

}  // namespace millrace::models
