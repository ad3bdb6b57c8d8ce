// When each step of a plan ran on each member of the team.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::models::graph {

// What a product multiplies: CPUs do each kind at a rate of its own.
enum class Factors { kF32, kBf16, kInt8 };

// What a step is and what it must do at least.
struct StepInfo {
  std::string text = {};
  std::string name = {};  // of the model's node, of a fused step the main one
  double macs = 0;        // multiply-adds of products; 0: none to speak of
  double bytes = 0;       // of operands and results, each once
  double constant_bytes = 0;  // of them, those of weights and other constants
  std::vector<int32_t> sources = {};  // steps whose results it reads, ascending
  Factors factors = Factors::kF32;    // of `macs`
  std::string onednn_shape = {};  // of a layer that oneDNN computes; else empty
};

struct StepSpan {
  int64_t begin_ns = 0;  // since the run began; a member that was not called
  int64_t end_ns = 0;    // has begin = end = 0
};

struct Trace {
  std::vector<StepInfo> steps;
  std::vector<std::vector<StepSpan>> spans;  // of each member, by step
  int64_t run_ns = 0;
};

}  // namespace millrace::models::graph
