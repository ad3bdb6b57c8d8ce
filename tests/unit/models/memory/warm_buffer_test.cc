// The pages of a warm buffer come by themselves and take nothing from whoever
// writes meanwhile.
#include "models/memory/warm_buffer.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

namespace millrace::models {
namespace {

constexpr int64_t kBytes = int64_t{24} << 20;
constexpr int64_t kWarm = int64_t{16} << 20;

int64_t ResidentPages(const std::byte* data, int64_t bytes) {
  std::vector<unsigned char> pages(static_cast<size_t>(bytes / 4096));
  EXPECT_EQ(::mincore(const_cast<std::byte*>(data), static_cast<size_t>(bytes),
                      pages.data()),
            0);
  return std::count_if(pages.begin(), pages.end(),
                       [](unsigned char page) { return page % 2 != 0; });
}

TEST(WarmBuffer, KeepsWhatIsWrittenWhileItsPagesCome) {
  auto buffer = WarmBuffer::Start(kBytes, kWarm, {0, 1}, "a test");
  ASSERT_TRUE(buffer.ok()) << buffer.status().message();
  for (int64_t i = 0; i < kBytes; i += 4096) buffer->data()[i] = std::byte{7};
  buffer->Wait();
  for (int64_t i = 0; i < kBytes; i += 4096) {
    ASSERT_EQ(buffer->data()[i], std::byte{7});
    ASSERT_EQ(buffer->data()[i + 1], std::byte{0});
  }
}

TEST(WarmBuffer, AsksForTheFirstPagesAndLeavesTheOthers) {
  auto buffer = WarmBuffer::Start(kBytes, kWarm, {0, 1}, "a test");
  ASSERT_TRUE(buffer.ok()) << buffer.status().message();
  buffer->Wait();
  const int64_t warm = ResidentPages(buffer->data(), kWarm);
  if (warm == 0) GTEST_SKIP() << "a kernel without MADV_POPULATE_WRITE";
  EXPECT_EQ(warm, kWarm / 4096);
  EXPECT_EQ(ResidentPages(buffer->data() + kWarm, kBytes - kWarm), 0);
}

TEST(WarmBuffer, MayGoBeforeItsPagesHaveCome) {
  const auto buffer = WarmBuffer::Start(kBytes, kWarm, {0, 1}, "a test");
  EXPECT_TRUE(buffer.ok());
}

}  // namespace
}  // namespace millrace::models
