#include "config/base/wrap.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(WrapText, BreaksBetweenWords) {
  EXPECT_EQ(WrapText("aa bb cc dd", 0, 5), "aa bb\ncc dd\n");
  EXPECT_EQ(WrapText("aa bb cc", 2, 7), "  aa bb\n  cc\n");
  EXPECT_EQ(WrapText("toolongforit x", 0, 5), "toolongforit\nx\n");
  EXPECT_EQ(WrapText("", 4, 10), "");
}

TEST(WrapText, EmptyLinesAndIndentedOnesStay) {
  EXPECT_EQ(WrapText("a\nb\n\nc\n  d", 0, 9), "a b\n\nc\n  d\n");
}

TEST(WrapText, CountsCharactersNotBytes) {
  EXPECT_EQ(TextColumns("…é"), 2u);
  EXPECT_EQ(WrapText("éé éé", 0, 5), "éé éé\n");
}

TEST(HelpEntry, TextStandsBesideOrBelow) {
  EXPECT_EQ(HelpEntry("  --a", "b c", 8, 20), "  --a   b c\n");
  EXPECT_EQ(HelpEntry("  --long", "b c", 8, 20), "  --long\n        b c\n");
  EXPECT_EQ(HelpEntry("  --a", "bbbbb ccccc", 8, 14),
            "  --a   bbbbb\n        ccccc\n");
  EXPECT_EQ(HelpEntry("  --a", "", 8, 20), "  --a\n");
}

}  // namespace
}  // namespace millrace
