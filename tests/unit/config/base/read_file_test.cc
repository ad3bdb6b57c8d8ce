#include "config/base/read_file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temp_path.h"

namespace millrace {
namespace {

TEST(ReadFileOf, GivesTheWholeFileWithinTheBound) {
  const std::string path = TempPath("read_file");
  std::ofstream(path) << std::string(40'000, 'x');
  EXPECT_EQ(*ReadFileOf("file", path, 40'000), std::string(40'000, 'x'));
  const Status large = ReadFileOf("file", path, 39'999).status();
  EXPECT_EQ(large.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(large.message().find("39999"), std::string::npos);
}

TEST(ReadFileOf, FoldersAndMissingFilesAreErrors) {
  const Status folder = ReadFileOf("file", testing::TempDir(), 10).status();
  EXPECT_EQ(folder.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(folder.message().find("Is a directory"), std::string::npos);
  const Status missing = ReadFileOf("file", "/none/such", 10).status();
  EXPECT_NE(missing.message().find("file is '/none/such'"), std::string::npos);
}

}  // namespace
}  // namespace millrace
