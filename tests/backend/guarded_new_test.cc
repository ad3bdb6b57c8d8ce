// guarded_new.cc catches what it is there for.

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/backend/kernels/tables.h"

namespace millrace::models {
namespace {

// The compiler would refuse these accesses, knew it where the pointers come
// from.
TEST(GuardedNewDeathTest, NothingBehindABlockCanBeTouched) {
  std::vector<float> x(1000, 1.0f);
  float* volatile end = x.data() + x.size();
  EXPECT_EQ(end[-1], 1.0f);
  EXPECT_DEATH({ EXPECT_EQ(*end, 1.0f); }, "");
  EXPECT_DEATH({ *end = 2.0f; }, "");
}

TEST(GuardedNewDeathTest, FloatsEndAtThePage) {
  for (const int64_t size : {1, 3, 101, 1000}) {
    const Floats x(size, 1.0f);
    const float* volatile end = x.data() + size;
    EXPECT_EQ(end[-1], 1.0f);
    EXPECT_DEATH({ EXPECT_EQ(*end, 1.0f); }, "") << size;
  }
}

TEST(GuardedNew, ShortBlocksAndAlignedOnesAreBlocks) {
  for (size_t bytes = 0; bytes < 200; ++bytes) {
    void* any = ::operator new(bytes);
    void* line = ::operator new (bytes, std::align_val_t{64});
    EXPECT_EQ(reinterpret_cast<uintptr_t>(any) % 16, 0u) << bytes;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(line) % 64, 0u) << bytes;
    ::operator delete(any);
    ::operator delete (line, std::align_val_t{64});
  }
}

}  // namespace
}  // namespace millrace::models
