// Tokens that the step before drew, in the places that name their samples.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "models/cuda/drawn_kernels.h"
#include "tests/cuda_emulation/device_array.h"

namespace millrace::cuda {
namespace {

TEST(TakeDrawn, TokensTakeWhatTheirSamplesDrewAndOthersStay) {
  // More rows than a block has threads.
  std::vector<int32_t> tokens;
  std::vector<int32_t> want;
  std::vector<int32_t> drawn;
  for (int32_t i = 0; i < 300; ++i) {
    drawn.push_back(1000 + i);
    const bool takes = i % 3 != 0;
    const int32_t sample = (i * 7) % 300;
    tokens.push_back(takes ? -1 - sample : i);
    want.push_back(takes ? 1000 + sample : i);
  }
  DeviceArray<int32_t> rows(tokens);
  DeviceArray<int32_t> ids(drawn);
  ASSERT_EQ(TakeDrawn(nullptr,
                      {.tokens = rows.get(), .drawn = ids.get(), .rows = 299}),
            0);
  want.back() = tokens.back();  // beyond the rows
  EXPECT_EQ(rows.Read(), want);
}

}  // namespace
}  // namespace millrace::cuda
