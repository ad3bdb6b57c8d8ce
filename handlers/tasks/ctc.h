// From the outputs of a CTC model to labels. Each frame has a score for each
// label and for the blank; a path of one label a frame stands for the labels
// that are left when repeated ones are joined and blanks taken out.
// Source: Graves et al. 2006, "Connectionist Temporal Classification"; the
// beam: Hannun et al. 2014, "First-Pass Large Vocabulary Continuous Speech
// Recognition using Bi-Directional Recurrent DNNs", without a language model.
// Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "config/base/status.h"

namespace millrace::handlers {

struct CtcToken {
  int64_t label = 0;
  int64_t first_frame = 0;  // where it begins
  int64_t end_frame = 0;    // the first one behind it
  double log_prob = 0;      // of the label in its best frame
};

struct CtcScores {
  std::span<const float> values;  // [frames, labels], logits or log-probs
  size_t num_labels = 1;
  size_t num_frames() const { return values.size() / num_labels; }
};

// The best label of each frame. INTERNAL where a score is NaN.
StatusOr<std::vector<CtcToken>> GreedyCtc(const CtcScores& scores,
                                          int64_t blank);

// The labels whose paths together are the most probable, among `width`
// prefixes that are kept from frame to frame; of a frame the blank and its
// `width` best labels are looked at. Where a token stands is that of its best
// frame's run.
StatusOr<std::vector<CtcToken>> BeamCtc(const CtcScores& scores, int64_t blank,
                                        size_t width);

}  // namespace millrace::handlers
