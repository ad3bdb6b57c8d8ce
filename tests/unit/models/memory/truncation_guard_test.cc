#include "models/memory/truncation_guard.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "models/memory/mapped_file.h"
#include "tests/support/temp_path.h"

namespace millrace::models {
namespace {

constexpr size_t kBytes = 64 << 10;

std::string MakeFile() {
  const std::string path = TempPath("cut.bin");
  std::ofstream(path) << std::string(kBytes, 'x');
  return path;
}

size_t NumX(const MappedFile& file) {
  size_t num = 0;
  for (const std::byte byte : file.bytes()) num += byte == std::byte{'x'};
  return num;
}

TEST(TruncationGuard, AWholeFileIsFine) {
  const TruncationGuard guard;
  const auto file = MappedFile::Open(MakeFile());
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(NumX(*file), kBytes);
  EXPECT_TRUE(guard.Check().ok());
}

TEST(TruncationGuard, ACutFileReadsAsZerosAndIsKnown) {
  const std::string path = MakeFile();
  {
    const TruncationGuard guard;
    const auto file = MappedFile::Open(path);
    ASSERT_TRUE(file.ok());
    ASSERT_EQ(truncate(path.c_str(), 4096), 0);
    EXPECT_EQ(NumX(*file), 4096u);
    EXPECT_EQ(guard.Check().code(), StatusCode::kDataLoss);
  }
  const TruncationGuard later;
  EXPECT_TRUE(later.Check().ok());
}

TEST(TruncationGuard, AFileStaysCoveredAsLongAsTheCover) {
  const std::string path = MakeFile();
  const std::string other_path = TempPath("other.bin");
  std::ofstream(other_path) << std::string(kBytes, 'x');
  std::shared_ptr<const FileCover> cover, other_cover;
  StatusOr<MappedFile> file = NotFound(""), other = NotFound("");
  {
    const TruncationGuard guard;
    file = MappedFile::Open(path);
    cover = TruncationGuard::Cover();
  }
  {
    const TruncationGuard guard;
    other = MappedFile::Open(other_path);
    other_cover = TruncationGuard::Cover();
  }
  ASSERT_TRUE(file.ok() && other.ok());
  EXPECT_EQ(NumX(*file), kBytes);
  EXPECT_TRUE(cover->Check().ok());
  ASSERT_EQ(truncate(path.c_str(), 4096), 0);
  EXPECT_EQ(NumX(*file), 4096u);
  EXPECT_EQ(cover->Check().code(), StatusCode::kDataLoss);
  EXPECT_TRUE(other_cover->Check().ok());
  EXPECT_EQ(TruncationGuard::Cover(), nullptr);
}

TEST(TruncationGuardDeathTest, WithoutAGuardTheProcessEnds) {
  const std::string path = MakeFile();
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok());
  {
    const TruncationGuard guard;
    const auto other = MappedFile::Open(path);
    ASSERT_TRUE(other.ok());
  }
  ASSERT_EQ(truncate(path.c_str(), 4096), 0);
  // Volatile: the reads must not be optimised away.
  EXPECT_EXIT(
      {
        volatile size_t num = NumX(*file);
        exit(num == 0 ? 1 : 2);
      },
      testing::KilledBySignal(SIGBUS), "");
}

TEST(TruncationGuardDeathTest, AFileOfBeforeIsNotCovered) {
  const std::string path = MakeFile();
  const auto before = MappedFile::Open(path);
  ASSERT_TRUE(before.ok());
  const TruncationGuard guard;
  const auto since = MappedFile::Open(path);
  ASSERT_TRUE(since.ok());
  ASSERT_EQ(truncate(path.c_str(), 4096), 0);
  EXPECT_EQ(NumX(*since), 4096u);
  EXPECT_EXIT(
      {
        volatile size_t num = NumX(*before);
        exit(num == 0 ? 1 : 2);
      },
      testing::KilledBySignal(SIGBUS), "");
}

TEST(TruncationGuardDeathTest, AFileOutlivesItsGuardUncovered) {
  const std::string path = MakeFile();
  auto guard = std::make_unique<TruncationGuard>();
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok());
  guard.reset();
  const TruncationGuard of_another_load;
  ASSERT_EQ(truncate(path.c_str(), 4096), 0);
  EXPECT_EXIT(
      {
        volatile size_t num = NumX(*file);
        exit(num == 0 ? 1 : 2);
      },
      testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace millrace::models
