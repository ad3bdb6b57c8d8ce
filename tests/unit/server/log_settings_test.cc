#include "server/log_settings.h"

#include <gtest/gtest.h>

#include "config/base/log.h"

namespace millrace::server {
namespace {

class LogControlTest : public testing::Test {
 protected:
  LogControlTest() { SetLogLevel(LogLevel::kInfo); }
  ~LogControlTest() override { SetLogLevel(LogLevel::kInfo); }
};

TEST_F(LogControlTest, SwitchesChooseTheLevel) {
  LogControl log;
  EXPECT_TRUE(log.Get().info);
  EXPECT_EQ(log.Get().verbose, 0u);
  ASSERT_TRUE(log.Set({.info = false}).ok());
  EXPECT_FALSE(LogEnabled(LogLevel::kInfo));
  EXPECT_TRUE(LogEnabled(LogLevel::kWarning));
  ASSERT_TRUE(log.Set({.warning = false, .info = false}).ok());
  EXPECT_FALSE(LogEnabled(LogLevel::kWarning));
  EXPECT_TRUE(LogEnabled(LogLevel::kError));
  ASSERT_TRUE(log.Set({.error = false}).ok());
  EXPECT_FALSE(LogEnabled(LogLevel::kError));
  ASSERT_TRUE(log.Set({.verbose = 1}).ok());
  EXPECT_TRUE(LogEnabled(LogLevel::kDebug));
  EXPECT_EQ(log.Get().verbose, 1u);
}

TEST_F(LogControlTest, AWrongFormatChangesNothing) {
  LogControl log;
  EXPECT_FALSE(log.Set({.info = false, .format = "x"}).ok());
  EXPECT_TRUE(log.Get().info);
  EXPECT_TRUE(LogEnabled(LogLevel::kInfo));
}

}  // namespace
}  // namespace millrace::server
