// When sequences do without draft tokens, so that steps may be launched ahead:
// a draft token stands behind the last token, which is not known while a step
// is in flight. Where a few steps in a row had no draft token worth checking,
// the next ones are not asked for any; then one is asked again.
//
//   if (lull.Rests()) ... launch ahead, without draft tokens ...
//   lull.Asked(found);   // of a step for which draft tokens were proposed
//
// Engine thread only.
#pragma once

#include <cstdint>

namespace millrace::scheduler {

class DraftLull {
 public:
  // Not measured: no GPU was there.
  static constexpr int32_t kStepsBefore = 4;
  static constexpr int32_t kStepsWithout = 12;

  void Asked(bool found) {
    steps_without_ = 0;
    steps_before_ = found ? 0 : steps_before_ + 1;
  }
  bool Rests() const {
    return steps_before_ >= kStepsBefore && steps_without_ < kStepsWithout;
  }
  // A step was launched that was not asked for draft tokens.
  void Rested() { ++steps_without_; }

 private:
  int32_t steps_before_ = 0;   // in a row, asked and without draft tokens
  int32_t steps_without_ = 0;  // in a row, not asked
};

}  // namespace millrace::scheduler
