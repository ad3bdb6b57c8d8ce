// Cost of a step: where its time goes, beside what the machine can do: the
// numbers behind the utilisation gauges.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace::models {

// Phases of all layers taken together, in order of running but for the last.
enum class StepPhase {
  kEmbed,
  kQkv,
  kAttention,
  kAttentionOutput,
  kGateUp,
  kDown,
  kHead,
  kSample,
  kAllReduce,  // sums over the ranks of a group, waiting for them included
};
inline constexpr std::array<const char*, 9> kStepPhaseNames = {
    "embed", "qkv",  "attention", "attention_output", "gate_up",
    "down",  "head", "sample",    "all_reduce"};

struct StepAccount {
  // By phase, waiting for other workers included.
  std::array<double, kStepPhaseNames.size()> seconds = {};
  double weight_bytes = 0;  // of all matrices that ran, each read once
  double kv_bytes = 0;      // keys and values of each sequence, read once
  // Multiply-adds of all matrices; attention's are left out.
  double macs = 0;
  // Of those, what rows of prompts took where they have kernels of their own.
  double prompt_macs = 0;
};

// When one member of the team ran a phase, waiting for the others included.
struct PhaseSpan {
  StepPhase phase = StepPhase::kEmbed;
  int32_t layer = 0;
  std::chrono::steady_clock::time_point begin;
  std::chrono::steady_clock::time_point end;
};
struct StepTrace {
  std::vector<std::vector<PhaseSpan>> members;  // of the step ended last
};

// Measured, not looked up: zero where it was not.
struct RunnerRoofline {
  // Of the packed weights by loads alone, read over and over as steps do.
  double read_bytes_per_s = 0;
  double macs_per_s = 0;  // by the model's own kernel, in cache
  // The same of the kernels for rows of prompts; 0: there are none.
  double prompt_macs_per_s = 0;
  double barrier_s = 0;
  // Not a peak, but found in the same way: the weights that are best walked for
  // all rows before the next ones.
  double pass_bytes = 0;

  // What multiply-adds take at their roofline; 0 where a peak is not known.
  double MacSeconds(double macs, double prompt_macs) const {
    const double others = macs - prompt_macs;
    return (macs_per_s > 0 ? others / macs_per_s : 0) +
           (prompt_macs_per_s > 0 ? prompt_macs / prompt_macs_per_s : 0);
  }
};

}  // namespace millrace::models
