// Reading memory as fast as the team can: a rate comes out, whatever the size.

#include "models/cpu/read_rate.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

namespace millrace::models {
namespace {

TEST(ReadRate, IsThatOfTheWholeTeam) {
  const std::vector<std::byte> memory(1 << 20);
  const auto topology = config::Topology::Detect();
  ASSERT_TRUE(topology.ok());
  for (const int members : {1, 0}) {  // 0: as many as there are
    ComputePool pool(topology->PhysicalCores(members), "read");
    const double rate = MeasureReadRate(pool, memory.data(), 1 << 20);
    EXPECT_GT(rate, 1e6) << pool.size();
    EXPECT_LT(rate, 1e14) << pool.size();
  }
}

TEST(ReadRate, IsZeroWhereThereIsNothingToRead) {
  const std::vector<std::byte> memory(256);
  ComputePool pool({}, "read");
  EXPECT_EQ(MeasureReadRate(pool, memory.data(), 0), 0);
  EXPECT_EQ(MeasureReadRate(pool, memory.data(), 255), 0);
  EXPECT_GT(MeasureReadRate(pool, memory.data(), 256), 0);
}

// A page that may not be read follows: a load behind the end would be a fault.
TEST(ReadRate, NothingBehindTheEndIsLoaded) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  auto* memory = static_cast<std::byte*>(
      mmap(nullptr, static_cast<size_t>(2 * page), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(mprotect(memory + page, static_cast<size_t>(page), PROT_NONE), 0);
  for (const int64_t bytes : {page, page - 256, int64_t{300}, int64_t{64}}) {
    ReadOnce(memory + page - bytes, bytes);
  }
  munmap(memory, static_cast<size_t>(2 * page));
}

}  // namespace
}  // namespace millrace::models
