#include "config/base/html.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(EscapeHtml, NothingOfATextIsMarkup) {
  EXPECT_EQ(EscapeHtml("<a href=\"x\">&amp;</a>"),
            "&lt;a href=&quot;x&quot;&gt;&amp;amp;&lt;/a&gt;");
  EXPECT_EQ(EscapeHtml("plain é"), "plain é");
}

}  // namespace
}  // namespace millrace
