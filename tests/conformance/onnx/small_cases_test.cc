// The smallest case of each operator, and those of control flow and of older
// opsets: what the gate runs of the onnx package's backend tests. They stand in
// one archive, which is unpacked to a folder of its own.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "models/files/mapped_file.h"
#include "models/files/zip.h"
#include "tests/conformance/onnx/case.h"

namespace millrace::models::graph {
namespace {

namespace fs = std::filesystem;

Status Unpack(const std::string& archive, const fs::path& folder) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(archive));
  ASSIGN_OR_RETURN(const ZipFile zip, ZipFile::Parse(file.bytes()));
  for (const ZipEntry& entry : zip.entries()) {
    ASSIGN_OR_RETURN(const std::string text, ReadEntry(entry, 1 << 20));
    const fs::path path = folder / entry.name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }
  return OkStatus();
}

TEST(OnnxConformance, TheSmallestCaseOfEachOperatorPasses) {
  const fs::path root = fs::path(testing::TempDir()) /
                        ("onnx_cases." + std::to_string(::getpid()));
  const Status unpacked = Unpack("tests/data/onnx_cases.zip", root);
  ASSERT_TRUE(unpacked.ok()) << unpacked.message();
  std::ifstream list(root / "cases.txt");
  Case one;
  int count = 0;
  while (list >> one.name >> one.rtol >> one.atol) {
    one.folder = (root / one.name).string();
    const Outcome outcome = RunCase(one);
    EXPECT_EQ(outcome.verdict, Verdict::kPass)
        << one.name << ": " << outcome.why;
    ++count;
  }
  EXPECT_GT(count, 200);
  fs::remove_all(root);
}

}  // namespace
}  // namespace millrace::models::graph
