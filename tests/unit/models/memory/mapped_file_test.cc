#include "models/memory/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "tests/support/temp_path.h"

namespace millrace::models {
namespace {

int64_t PagesInMemory(std::span<const std::byte> bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> in_memory(bytes.size() / page);
  auto* begin = const_cast<std::byte*>(bytes.data());
  EXPECT_EQ(mincore(begin, bytes.size(), in_memory.data()), 0);
  return std::count_if(in_memory.begin(), in_memory.end(),
                       [](unsigned char state) { return (state & 1) != 0; });
}

TEST(MappedFile, OfBytesReadAtRandomOnlyThePagesAskedForAreRead) {
  if (std::getenv("MILLRACE_TEST_EMULATED") != nullptr) {
    GTEST_SKIP() << "the emulator does not pass this advice on";
  }
  const std::string path = TempPath("rows.bin");
  std::ofstream(path) << "x";
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t size = 1024 * page;
  ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(size)), 0);
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok());
  const auto table = file->bytes().subspan(10);
  WillReadAtRandom(table);
  const int64_t before = PagesInMemory(file->bytes());
  for (const size_t at : {size / 4, size / 2, size - 1}) {
    EXPECT_EQ(file->bytes()[at], std::byte{0});
  }
  EXPECT_EQ(PagesInMemory(file->bytes()) - before, 3);
}

}  // namespace
}  // namespace millrace::models
