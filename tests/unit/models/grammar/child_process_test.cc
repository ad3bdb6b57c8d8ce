#include "models/grammar/child_process.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

namespace millrace::models {
namespace {

using std::chrono::milliseconds;

StatusOr<std::string> Shell(const std::string& script, std::string_view input,
                            const ChildLimits& limits = {}) {
  return RunChild({"/bin/sh", "-c", script}, input, limits);
}

TEST(ChildProcess, GivesWhatItWrote) {
  const std::string large(3 << 20, 'x');
  const auto echoed = Shell("cat; echo lost >&2", large);
  ASSERT_TRUE(echoed.ok()) << echoed.status().ToString();
  EXPECT_EQ(*echoed, large);
}

TEST(ChildProcess, IsKilledAtItsLimitOfTime) {
  const auto begun = std::chrono::steady_clock::now();
  const auto slow = Shell("sleep 60", "", {.time = milliseconds(50)});
  EXPECT_EQ(slow.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));
}

TEST(ChildProcess, IsKilledAtItsLimitOfTimeThoughItsOutputIsClosed) {
  const auto begun = std::chrono::steady_clock::now();
  const auto slow = Shell("exec sleep 60 >&-", "", {.time = milliseconds(50)});
  EXPECT_EQ(slow.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));
}

TEST(ChildProcess, MayNotWriteMoreThanItsLimit) {
  const auto loud = Shell("cat /dev/zero", "", {.output_bytes = 1 << 20});
  EXPECT_EQ(loud.status().code(), StatusCode::kResourceExhausted);
}

TEST(ChildProcess, FailsByItsCodeOrSignal) {
  const auto code_of = [](const char* script) {
    return Shell(script, "").status().code();
  };
  // Limits that it would meet again.
  EXPECT_EQ(code_of("exit 3"), StatusCode::kResourceExhausted);
  EXPECT_EQ(code_of("kill -XCPU $$"), StatusCode::kResourceExhausted);
  // What may be the machine's fault.
  EXPECT_EQ(code_of("exit 1"), StatusCode::kUnavailable);
  EXPECT_EQ(code_of("kill -9 $$"), StatusCode::kUnavailable);
}

TEST(ChildProcess, OfAProgramThatIsNotThereIsAnErrorOfOurs) {
  if (std::getenv("MILLRACE_TEST_EMULATED") != nullptr) {
    GTEST_SKIP() << "an emulator's child says why only by its exit code";
  }
  EXPECT_EQ(RunChild({"/nonexistent"}, "", {}).status().code(),
            StatusCode::kInternal);
}

}  // namespace
}  // namespace millrace::models
