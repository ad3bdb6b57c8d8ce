#include "config/base/log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

namespace millrace {
namespace {

class LogTest : public testing::Test {
 protected:
  // What a body logged, line by line.
  template <typename Body>
  std::vector<std::string> Lines(Body body) {
    testing::internal::CaptureStderr();
    body();
    std::istringstream all(testing::internal::GetCapturedStderr());
    std::vector<std::string> lines;
    for (std::string line; std::getline(all, line);) lines.push_back(line);
    return lines;
  }
  ~LogTest() override { SetUpLog(LogLevel::kInfo, LogFormat::kText); }
};

TEST_F(LogTest, TextLineHasTimeLevelEventAndFields) {
  SetUpLog(LogLevel::kInfo, LogFormat::kText);
  const auto lines = Lines([] {
    LogInfo("model loaded", {{"model", "smol"},
                             {"seconds", 0.41},
                             {"ok", true},
                             {"tokens", int64_t{7}},
                             {"path", "a b\n\"c\""}});
  });
  ASSERT_EQ(lines.size(), 1u);
  // 2026-03-01T10:00:00.123Z
  EXPECT_EQ(lines[0][10], 'T');
  EXPECT_EQ(lines[0][23], 'Z');
  EXPECT_EQ(lines[0].substr(25),
            "INFO  model loaded model=smol seconds=0.41 ok=true tokens=7 "
            "path=\"a b\\n\\\"c\\\"\"");
}

TEST_F(LogTest, StatusLineStaysBelowTheLines) {
  testing::internal::CaptureStderr();
  ShowStatusLine("half");
  LogInfo("one");
  ShowStatusLine("");
  LogInfo("two");
  const std::string text = testing::internal::GetCapturedStderr();
  const std::string clear = "\r\x1b[K";
  EXPECT_EQ(text.find(clear + "half" + clear + "20"), 0u) << text;
  EXPECT_NE(text.find("INFO  one\nhalf" + clear + "20"), std::string::npos)
      << text;
  EXPECT_TRUE(text.ends_with("INFO  two\n")) << text;
}

TEST_F(LogTest, JsonLineParsesWhateverTheValues) {
  SetUpLog(LogLevel::kInfo, LogFormat::kJson);
  const auto lines = Lines([] {
    LogError("bad \"thing\"\n", {{"raw", std::string("\x01\xFF{}%v", 6)},
                                 {"nan", std::stod("nan")},
                                 {"n", 3}});
  });
  ASSERT_EQ(lines.size(), 1u);
  const auto line = nlohmann::json::parse(lines[0]);
  EXPECT_EQ(line["level"], "error");
  EXPECT_EQ(line["event"], "bad \"thing\"\n");
  EXPECT_EQ(line["raw"], "\x01\uFFFD{}%v");
  EXPECT_EQ(line["nan"], "nan");
  EXPECT_EQ(line["n"], 3);
  EXPECT_EQ(line["time"].get<std::string>().size(), 24u);
}

TEST_F(LogTest, LevelHidesWhatStandsBelowIt) {
  SetUpLog(LogLevel::kWarning, LogFormat::kText);
  EXPECT_FALSE(LogEnabled(LogLevel::kInfo));
  const auto lines = Lines([] {
    LogDebug("no");
    LogInfo("no");
    LogWarning("yes");
  });
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("WARN  yes"), std::string::npos);
  SetUpLog(LogLevel::kOff, LogFormat::kText);
  EXPECT_TRUE(Lines([] { LogError("no"); }).empty());
}

TEST_F(LogTest, ThreadsWriteWholeLines) {
  SetUpLog(LogLevel::kInfo, LogFormat::kText);
  const auto lines = Lines([] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < 50; ++i) LogInfo("event", {{"i", i}});
      });
    }
    for (auto& thread : threads) thread.join();
  });
  EXPECT_EQ(lines.size(), 200u);
  for (const auto& line : lines) {
    EXPECT_EQ(line.substr(25, 14), "INFO  event i=") << line;
  }
}

TEST_F(LogTest, NamesParse) {
  EXPECT_EQ(*ParseLogLevel("warning"), LogLevel::kWarning);
  EXPECT_EQ(*ParseLogFormat("json"), LogFormat::kJson);
  EXPECT_NE(ParseLogLevel("loud").status().message().find("'loud'"),
            std::string::npos);
  EXPECT_EQ(ParseLogFormat("xml").status().field(), "log_format");
}

}  // namespace
}  // namespace millrace
