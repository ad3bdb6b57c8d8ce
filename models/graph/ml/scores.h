// What becomes of the scores of a classifier or a regressor: post transforms,
// and the label of each row.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"

namespace millrace::models::graph {

enum class PostTransform : uint8_t {
  kNone,
  kLogistic,
  kSoftmax,
  kSoftmaxZero,  // scores of 0 stay 0 and do not count
  kProbit,
};
StatusOr<PostTransform> PostTransformNamed(std::string_view name);
void ApplyPostTransform(PostTransform post, std::span<double> scores);

// How one row's scores become a label and the scores that are answered. What
// the specification leaves open is as ONNX Runtime has it.
struct ClassifierHead {
  // One of both has the labels.
  std::vector<int64_t> numbers;
  std::vector<std::string> texts;
  PostTransform post = PostTransform::kNone;
  enum class Binary : uint8_t {
    kNo,      // the greatest score wins
    kHalf,    // one score, from 0 to 1: above 0.5 the second label wins
    kZero,    // one score: above 0 the second label wins
    kLinear,  // the same of a linear model
    kSingle,  // one class alone
  };
  Binary binary = Binary::kNo;
  std::vector<double> base;  // added to the scores; or empty

  size_t num_labels() const { return numbers.size() + texts.size(); }
  // Of `num_scores` that come in.
  size_t num_answered(size_t num_scores) const;
  // The index of the label. `scores` has room for num_answered.
  size_t Classify(std::span<double> scores, size_t num_scores) const;
};

}  // namespace millrace::models::graph
