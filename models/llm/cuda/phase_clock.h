// Seconds by phase of all steps, without marks between the phases of each: how
// long a step took is measured always (two marks on the stream); how that time
// splits over its phases is taken from the last step of its kind that had marks
// between them, which is the first one and then one of many.
//
//   if (clock.AsksForMarks(kind)) ... set a mark behind each phase ...
//   clock.KeepSplit(kind, seconds);                  // of a step with marks
//   account.seconds = clock.Split(kind, seconds);    // of one without
//
// So sums are exact and never above the time that passed; the split follows
// with some steps' delay. One thread.
#pragma once

#include <array>
#include <cstdint>

#include "models/llm/step_account.h"

namespace millrace::models {

class PhaseClock {
 public:
  using Seconds = decltype(StepAccount::seconds);
  // Rows of prompts take other kernels, and more of them, than others.
  enum Kind { kCompletions, kPrompts };
  // Each of so many steps of a kind has marks. Steps with prompts are longer
  // and differ more.
  static constexpr std::array<int32_t, 2> kStepsPerSplit = {64, 16};

  // Counts a step. The same sequence of kinds has the same answers: the ranks
  // of a group agree without a word.
  bool AsksForMarks(Kind kind) {
    int32_t& count = counts_[kind];
    const bool asks = count == 0;
    count = (count + 1) % kStepsPerSplit[kind];
    return asks;
  }
  void KeepSplit(Kind kind, const Seconds& seconds) {
    double sum = 0;
    for (const double each : seconds) sum += each;
    if (!(sum > 0)) return;
    for (size_t i = 0; i < seconds.size(); ++i) {
      shares_[kind][i] = seconds[i] / sum;
    }
  }
  // All zero before the first split of the kind.
  Seconds Split(Kind kind, double seconds) const {
    Seconds split = shares_[kind];
    for (double& each : split) each *= seconds;
    return split;
  }

 private:
  std::array<int32_t, 2> counts_ = {};
  std::array<Seconds, 2> shares_ = {};
};

}  // namespace millrace::models
