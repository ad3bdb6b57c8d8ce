// What a client expects the completion to say (OpenAI's `prediction`), as draft
// tokens. As long as the completion follows the predicted text, the next tokens
// of that are proposed. Behind a divergence the last tokens of the completion
// are looked up in it, and where they stand it goes on.
//
//   Prediction prediction(tokens);
//   prediction.Propose(output, 5);     // at most 5 ids; none: it says nothing
//   prediction.Count(2, 3);            // a step accepted 2 of these 5
//
// Counted are draft tokens that a step has checked, as OpenAI bills them: those
// that became part of the completion are accepted, the others are rejected. A
// predicted token that is tried twice is counted twice, one that no step tries
// is not counted. How many a step tries depends on what steps cost
// (speculation.h), so the counts of one request may differ between two runs;
// the completion does not.
//
// Deterministic. Engine thread only.
// Source: OpenAI's guide "Predicted Outputs" and the fields of its usage.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scheduler/token_stream.h"

namespace millrace::scheduler {

class Prediction {
 public:
  Prediction() = default;  // predicts nothing
  explicit Prediction(std::vector<int32_t> tokens);

  // What comes after `output`, all output tokens so far; one call's output
  // begins with that of the call before it.
  std::vector<int32_t> Propose(std::span<const int32_t> output,
                               int32_t max_tokens);

  void Count(int32_t num_accepted, int32_t num_rejected) {
    counts_.accepted += num_accepted;
    counts_.rejected += num_rejected;
  }
  PredictionCounts counts() const { return counts_; }

 private:
  // Where the last tokens of `output` stand in the predicted text.
  void LookUp(std::span<const int32_t> output);

  std::vector<int32_t> tokens_;
  size_t num_read_ = 0;  // output tokens that next_ takes into account
  size_t next_ = 0;      // the predicted token that is expected
  bool lost_ = false;    // the completion says something else
  PredictionCounts counts_;
};

}  // namespace millrace::scheduler
