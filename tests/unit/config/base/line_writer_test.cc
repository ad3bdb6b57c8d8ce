#include "config/base/line_writer.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <string>

namespace millrace {
namespace {

using std::chrono::milliseconds;

class LineWriterTest : public testing::Test {
 protected:
  LineWriterTest() {
    signal(SIGPIPE, SIG_IGN);
    EXPECT_EQ(pipe(ends_), 0);
  }
  ~LineWriterTest() override {
    close(ends_[0]);
    close(ends_[1]);
  }
  std::string Read(size_t most) {
    std::string text(most, 0);
    const ssize_t got = read(ends_[0], text.data(), most);
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return text;
  }

  int ends_[2] = {-1, -1};
};

// A line that fills a pipe of 64 KiB after a few.
std::string Long(char c) { return std::string(40000, c) + '\n'; }

TEST_F(LineWriterTest, WritesWholeLines) {
  LineWriter writer(ends_[1]);
  EXPECT_TRUE(writer.Write("one\n"));
  EXPECT_TRUE(writer.Write("two\n"));
  EXPECT_EQ(Read(100), "one\ntwo\n");
  EXPECT_EQ(writer.TakeLost(), 0);
}

TEST_F(LineWriterTest, WaitsForAReaderOnceAndThenDrops) {
  LineWriter writer(ends_[1], milliseconds(50), milliseconds(60'000));
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_TRUE(writer.Write(Long('a')));
  EXPECT_FALSE(writer.Write(Long('b')));
  const auto waited = std::chrono::steady_clock::now() - begun;
  EXPECT_GE(waited, milliseconds(50));
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(writer.Write("c\n"));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, milliseconds(30'000));
  // Still full: who told the number would not be heard.
  EXPECT_EQ(writer.TakeLost(), 0);
}

TEST_F(LineWriterTest, ALineThatWasBegunIsEndedBeforeTheNext) {
  LineWriter writer(ends_[1], milliseconds(1), milliseconds(60'000));
  EXPECT_TRUE(writer.Write(Long('a')));
  EXPECT_FALSE(writer.Write(Long('b')));
  EXPECT_EQ(Read(40001), Long('a'));
  std::string rest = Read(1 << 16);
  EXPECT_EQ(rest.find_first_not_of('b'), std::string::npos);
  EXPECT_EQ(writer.TakeLost(), 1);
  EXPECT_TRUE(writer.Write("next\n"));
  EXPECT_EQ(Read(100), "\nnext\n");
}

TEST_F(LineWriterTest, NobodyReadsAnyMore) {
  LineWriter writer(ends_[1], milliseconds(60'000), milliseconds(60'000));
  close(ends_[0]);
  EXPECT_FALSE(writer.Write("gone\n"));
  EXPECT_FALSE(writer.Write("gone\n"));
}

}  // namespace
}  // namespace millrace
