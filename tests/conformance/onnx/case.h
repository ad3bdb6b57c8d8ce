// One case of the onnx package's backend tests, as dump_onnx_cases.py writes
// it: a model, inputs, the outputs to expect.
#pragma once

#include <string>

namespace millrace::models::graph {

struct Case {
  std::string name;
  std::string folder;
  double rtol = 1e-3;
  double atol = 1e-7;
};

enum class Verdict { kPass, kFail, kUnsupported };

struct Outcome {
  Verdict verdict = Verdict::kPass;
  std::string why;
};

// Every data set of the case. Thread-safe.
Outcome RunCase(const Case& one);

}  // namespace millrace::models::graph
