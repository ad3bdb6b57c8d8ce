#include "config/base/size_text.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(SizeText, ChoosesTheUnit) {
  EXPECT_EQ(SizeText(3000), "3000 bytes");
  EXPECT_EQ(SizeText((int64_t{1} << 20) - 1), "1048575 bytes");
  EXPECT_EQ(SizeText(int64_t{3} << 19), "1.5 MiB");
  EXPECT_EQ(SizeText((int64_t{5} << 30) + (int64_t{3} << 28)), "5.75 GiB");
}

TEST(SizeText, ASettingIsNeverTooSmall) {
  EXPECT_EQ(SizeSetting(10'000), "10000");
  EXPECT_EQ(SizeSetting(int64_t{1} << 20), "1MiB");
  EXPECT_EQ(SizeSetting((int64_t{1} << 30) + 1), "1025MiB");
}

}  // namespace
}  // namespace millrace
