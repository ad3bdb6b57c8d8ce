// The smallest case of each operator, and those of control flow and of older
// opsets: what the gate runs of the onnx package's backend tests. They stand in
// one archive, which is unpacked to a folder of its own.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "models/files/zip.h"
#include "models/memory/mapped_file.h"
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

// First words of the lines, but for comments.
std::set<std::string> NamesIn(const std::string& file) {
  std::ifstream lines("tests/conformance/onnx/" + file);
  EXPECT_TRUE(lines.is_open()) << file;
  std::set<std::string> names;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("#")) names.insert(line.substr(0, line.find(' ')));
  }
  return names;
}

// run.sh runs them; that the lists stay whole is checked here.
TEST(OnnxConformance, EveryCaseOfTheFirstTargetIsExpectedToPassOrHasAReason) {
  const auto expected = NamesIn("expected_passes.txt");
  const auto reasons = NamesIn("why_not.txt");
  const auto target = NamesIn("first_target.txt");
  EXPECT_EQ(target.size(), 612u);
  for (const std::string& name : target) {
    EXPECT_TRUE(expected.contains(name) || reasons.contains(name)) << name;
  }
}

}  // namespace
}  // namespace millrace::models::graph
