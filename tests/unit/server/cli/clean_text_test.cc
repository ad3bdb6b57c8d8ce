// Text of others that a terminal must not obey.
#include "server/cli/clean_text.h"

#include <gtest/gtest.h>

namespace millrace::server {
namespace {

TEST(CleanText, ControlCharactersBecomeSpaces) {
  EXPECT_EQ(Clean("a\x1b[2Jb\x7f\n"), "a [2Jb  ");
  EXPECT_EQ(Clean("a\nb\tc", kShownBytes, /*keep_lines=*/true), "a\nb c");
  EXPECT_EQ(Clean("x\xc2\x9b"
                  "2J\xc2\x80\xc2\x9f"),
            "x 2J  ")
      << "U+009B";
  EXPECT_EQ(Clean("\xc2\xa0\xc3\xa9"), "\xc2\xa0\xc3\xa9")
      << "U+00A0 and letters stay";
  EXPECT_EQ(Clean("\x9b"), "\xef\xbf\xbd") << "a byte that is no UTF-8";
  EXPECT_EQ(Clean("\xc3\xa9\xc3\xa9", 3), "\xc3\xa9…") << "whole characters";
}

TEST(CleanText, PrintableLeavesControlCharactersOut) {
  EXPECT_EQ(Printable("a\x1b[2J\xc2\x9b"
                      "b\x07\r\n\tc\x7f"),
            "a[2Jb\n\tc");
  EXPECT_EQ(Printable("\xc2\xa0\xc3\xa9 \xc2"), "\xc2\xa0\xc3\xa9 \xc2");
}

}  // namespace
}  // namespace millrace::server
