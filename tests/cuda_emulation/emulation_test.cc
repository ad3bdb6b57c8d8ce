// The emulation finds what would go wrong on a GPU.
#include <gtest/gtest.h>

#include <set>

#include "tests/cuda_emulation/cuda_emulation.h"

namespace cuda_emulation {
namespace {

float* Shared() { return reinterpret_cast<float*>(SharedMemory()); }

TEST(Emulation, RunsEveryThreadOfEveryBlockOnce) {
  std::multiset<unsigned> seen;
  RunGrid({2, 3, 2}, {64}, 0, [&] {
    seen.insert(threadIdx.x +
                64 * (blockIdx.x + 2 * (blockIdx.y + 3 * blockIdx.z)));
  });
  ASSERT_EQ(seen.size(), 64u * 12);
  EXPECT_EQ(*seen.rbegin(), 64u * 12 - 1);
  EXPECT_EQ(std::set<unsigned>(seen.begin(), seen.end()).size(), seen.size());
}

TEST(Emulation, LanesExchangeValues) {
  RunGrid({1}, {64}, 0, [] {
    const int lane = Lane();
    EXPECT_EQ(__shfl_xor_sync(~0u, lane, 5), lane ^ 5);
    EXPECT_EQ(__shfl_sync(~0u, lane * 2, 7), 14);
    EXPECT_EQ(__ballot_sync(~0u, lane % 3 == 0), 0x49249249u);
  });
  EXPECT_EQ(__dp4a(0x01ff0280, 0x0102037f, 10), 1 - 2 + 6 - 128 * 127 + 10);
}

TEST(Emulation, RecordedWorkRunsLater) {
  int runs = 0;
  Recording recording;
  Record(&recording);
  Do([&] { ++runs; });
  Record(nullptr);
  EXPECT_EQ(runs, 0);
  for (const auto& work : recording) work();
  Do([&] { ++runs; });
  EXPECT_EQ(runs, 2);
}

TEST(Emulation, SharedMemoryStartsAsNan) {
  RunGrid({2}, {32}, 128, [] {
    EXPECT_TRUE(std::isnan(Shared()[threadIdx.x]));
    Shared()[threadIdx.x] = 1;
  });
}

// Each thread reads what its neighbour wrote; without a barrier between, some
// order of threads shows it.
TEST(Emulation, AMissingBarrierShows) {
  const auto wrong = [](bool barrier) {
    int count = 0;
    RunGrid({20}, {64}, 256, [&] {
      Shared()[threadIdx.x] = 1;
      if (barrier) __syncthreads();
      if (!(Shared()[(threadIdx.x + 1) % 64] == 1)) ++count;
    });
    return count;
  };
  EXPECT_EQ(wrong(true), 0);
  EXPECT_GT(wrong(false), 0);
}

// Copies are there for the thread that waited, and not before.
TEST(Emulation, CopiesAreMadeWhenAThreadWaits) {
  const float from[3] = {1, 2, 3};
  RunGrid({1}, {32}, 3 * 32 * sizeof(float), [&] {
    float* own = Shared() + 3 * threadIdx.x;
    CopyAsync(own, from, 4, true);
    CopyAsync(own + 1, from + 1, 4, false);
    CommitCopies();
    CopyAsync(own + 2, from + 2, 4, true);
    CommitCopies();
    EXPECT_TRUE(std::isnan(own[0]));
    WaitCopies(1);
    EXPECT_EQ(own[0], 1);
    EXPECT_EQ(own[1], 0) << "filled with zeros";
    EXPECT_TRUE(std::isnan(own[2]));
    WaitCopies(0);
    EXPECT_EQ(own[2], 3);
  });
}

// Matrix m holds 100 m + 10 row + column.
TEST(Emulation, FragmentsAreRowsOrColumns) {
  alignas(16) uint16_t rows[32][8];
  for (int i = 0; i < 32; ++i) {
    for (int column = 0; column < 8; ++column) {
      rows[i][column] =
          static_cast<uint16_t>(100 * (i / 8) + 10 * (i % 8) + column);
    }
  }
  RunGrid({1}, {32}, 0, [&] {
    uint32_t out[4];
    LoadFragments(rows[Lane()], out, false);
    if (Lane() == 13) {  // row 3, columns 2 and 3
      EXPECT_EQ(out[2], 232u | 233u << 16);
    }
    LoadFragments(rows[Lane()], out, true);
    if (Lane() == 13) {  // rows 2 and 3 of column 3
      EXPECT_EQ(out[2], 223u | 233u << 16);
    }
  });
}

// Blocks that rely on an order of their own.
TEST(Emulation, BlocksRunInAnyOrder) {
  std::set<unsigned> first;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    SetSeed(seed);
    bool any = false;
    RunGrid({8}, {32}, 0, [&] {
      if (!any) first.insert(blockIdx.x);
      any = true;
    });
  }
  EXPECT_GT(first.size(), 2u);
}

TEST(EmulationDeathTest, WhatAGpuWouldNotDo) {
  EXPECT_DEATH(RunGrid({1}, {64}, 0,
                       [] {
                         if (threadIdx.x < 40) __syncthreads();
                       }),
               "not all threads reach a barrier");
  EXPECT_DEATH(RunGrid({1}, {32}, 0,
                       [] {
                         if (threadIdx.x != 3) __syncwarp();
                       }),
               "a lane has left before");
  EXPECT_DEATH(RunGrid({1}, {32}, 0,
                       [] {
                         if (threadIdx.x != 3) {
                           __syncwarp();
                         } else {
                           __shfl_sync(~0u, 1, 0);
                         }
                       }),
               "different operations");
  EXPECT_DEATH(RunGrid({1}, {64}, 100 << 10, [] {}), "no GPU would launch");
  EXPECT_DEATH(
      {
        auto* memory = static_cast<volatile char*>(AllocateDevice(32));
        memory[32] = 1;
      },
      "");
}

}  // namespace
}  // namespace cuda_emulation
