// onnx_cases FOLDER [WORD]: runs the cases that FOLDER/index.json lists, or
// those with WORD in their names, and prints "NAME pass", "NAME fail WHY" or
// "NAME unsupported WHY" for each.
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/conformance/onnx/case.h"

namespace {

using millrace::models::graph::Case;
using millrace::models::graph::RunCase;
using millrace::models::graph::Verdict;

const char* Word(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return "pass";
    case Verdict::kFail:
      return "fail";
    case Verdict::kUnsupported:
      break;
  }
  return "unsupported";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: onnx_cases FOLDER [WORD]\n");
    return 2;
  }
  const std::string root = argv[1];
  const std::string word = argc > 2 ? argv[2] : "";
  std::ifstream file(root + "/index.json");
  const auto index = nlohmann::json::parse(file, nullptr, false);
  if (!index.is_array()) {
    std::fprintf(stderr, "onnx_cases: no index.json in %s\n", root.c_str());
    return 2;
  }
  for (const auto& row : index) {
    Case one;
    one.name = row.at("name");
    one.folder = root + "/" + row.at("dir").get<std::string>();
    one.rtol = row.at("rtol");
    one.atol = row.at("atol");
    if (one.name.find(word) == std::string::npos) continue;
    const auto outcome = RunCase(one);
    std::printf("%s %s %s\n", one.name.c_str(), Word(outcome.verdict),
                outcome.why.c_str());
    std::fflush(stdout);
  }
  return 0;
}
