// Markdown as styles of a terminal; <b>, <h>, <c> and </> stand for the escape
// sequences of bold, heading, code and reset.
#include "server/cli/chat/markdown.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace millrace::server {
namespace {

std::string Named(std::string text) {
  for (const auto& [escape, name] :
       {std::pair<std::string, std::string>{"\x1b[0m", "</>"},
        {"\x1b[1;4m", "<h>"},
        {"\x1b[1m", "<b>"},
        {"\x1b[36m", "<c>"}}) {
    for (size_t at = 0; (at = text.find(escape, at)) != text.npos;) {
      text.replace(at, escape.size(), name);
    }
  }
  return text;
}

// The same whether it comes at once or byte by byte.
std::string Shown(const std::string& text) {
  MarkdownScreen whole, bytes;
  std::string at_once = whole.Feed(text);
  at_once += whole.Finish();
  std::string piecewise;
  for (const char c : text) piecewise += bytes.Feed(std::string(1, c));
  piecewise += bytes.Finish();
  EXPECT_EQ(at_once, piecewise);
  return Named(at_once);
}

TEST(Markdown, PlainTextStays) {
  for (const char* text :
       {"", "a", "a b\n\nc\n", "2 * 3 ** 4", "#1 is", "-5", "1. one\n2. two",
        "x_y_z", "a * b\n", "----\n", "   ", "``", "a `b", "*", "**"}) {
    EXPECT_EQ(Shown(text), text);
  }
}

TEST(Markdown, BoldCodeHeadingsAndLists) {
  EXPECT_EQ(Shown("a **b c** d"), "a </><b>b c</> d");
  EXPECT_EQ(Shown("**b**\n"), "</><b>b</>\n");
  EXPECT_EQ(Shown("use `ls -l`."), "use <c>ls -l</>.");
  EXPECT_EQ(Shown("`**not bold**`"), "<c>**not bold**</>");
  EXPECT_EQ(Shown("## Rivers\nx"), "<h>Rivers</>\nx");
  EXPECT_EQ(Shown("# A **b** c\n"), "<h>A </><h><b>b</><h> c</>\n");
  EXPECT_EQ(Shown("- a\n  * b\n+ c"), "• a\n  • b\n• c");
}

TEST(Markdown, BoldEndsWithItsParagraph) {
  EXPECT_EQ(Shown("**a\nb\n\nc"), "</><b>a\nb\n</>\nc");
}

TEST(Markdown, FencesAreNotShownWhatTheyHoldIs) {
  EXPECT_EQ(Shown("```python\nx = **1**\n\n  y\n```\nend"),
            "<c>x = **1**</>\n</>\n<c>  y</>\n</>end");
  EXPECT_EQ(Shown("```\nx\n```"), "<c>x</>\n</>") << "no line break at the end";
  EXPECT_EQ(Shown("- a\n  ```\n  x\n  ```\n"), "• a\n<c>  x</>\n</>");
}

TEST(Markdown, TextBeyondAsciiPassesByteByByte) {
  EXPECT_EQ(Shown("**é** – 日本"), "</><b>é</> – 日本");
}

}  // namespace
}  // namespace millrace::server
