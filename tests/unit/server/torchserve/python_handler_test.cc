#include "server/torchserve/python_handler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/torchserve/profile.h"

namespace millrace::server::torchserve {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(PythonHandler, NamesAFileAndMaybeAFunction) {
  for (const auto& [text, file, function] :
       {std::tuple{"h.py", "h.py", ""}, std::tuple{"h", "h.py", ""},
        std::tuple{"h.py:work", "h.py", "work"},
        std::tuple{"h:work", "h.py", "work"}}) {
    const auto parsed = ParsePythonHandler(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(parsed->file, file) << text;
    EXPECT_EQ(parsed->function, function) << text;
  }
  for (const char* text : {"", ".py", "../h.py", "/h.py", "a\\h.py",
                           "h.py:", ":work", "h.py:a:b", "h\n.py"}) {
    EXPECT_FALSE(ParsePythonHandler(text).ok()) << text;
  }
}

TEST(PythonHandler, RunsInTheUsersInterpreter) {
  const auto process = PythonProcess("/opt/python", "h.py", 7, 0);
  EXPECT_THAT(process->command,
              ElementsAre("/opt/python", "-m", "millrace_torchserve", "h.py"));
  EXPECT_EQ(process->startup_timeout_ms, 7000);
  EXPECT_EQ(process->response_timeout_ms, 24 * 3600 * 1000);
  EXPECT_EQ(process->memory_limit_bytes, 0);
}

TEST(PythonHandler, NoneRunsUntilAnInterpreterIsNamed) {
  const auto plain = ProfileOf({});
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->registry.python, "");
  const auto named =
      ProfileOf({{"python", "/opt/python"}, {"workflow_store", "wf"}});
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(named->registry.python, "/opt/python");
  EXPECT_EQ(named->registry.workflow_store, "wf");
  EXPECT_THAT(named->warnings, IsEmpty());
}

}  // namespace
}  // namespace millrace::server::torchserve
