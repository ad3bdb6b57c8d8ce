#include "models/graph/ml/scores.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace millrace::models::graph {
namespace {

double Logistic(double x) {
  const double y = 1 / (1 + std::exp(-std::abs(x)));
  return x < 0 ? 1 - y : y;
}

// The inverse of the normal distribution's integral by Winitzki's formula for
// the inverse error function ("A handy approximation for the error function and
// its inverse", 2008), as ONNX Runtime has it.
double Probit(double x) {
  constexpr double kPi = 3.14159265358979323846;
  const double y = 2 * x - 1;
  const double log = std::log((1 - y) * (1 + y));
  const double v = 2 / (kPi * 0.147) + 0.5 * log;
  const double root = std::sqrt(-v + std::sqrt(v * v - log / 0.147));
  return std::sqrt(2.0) * (y < 0 ? -root : root);
}

void Softmax(std::span<double> scores, bool keeps_zeros) {
  constexpr double kZero = 1e-7;
  const auto is_zero = [&](double x) {
    return keeps_zeros && std::abs(x) <= kZero;
  };
  const double greatest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) {
    // A zero stays what it is times exp(-greatest).
    score = is_zero(score) ? score * std::exp(-greatest)
                           : std::exp(score - greatest);
    sum += score;
  }
  for (double& score : scores) score /= sum;
}

}  // namespace

StatusOr<PostTransform> PostTransformNamed(std::string_view name) {
  constexpr std::pair<std::string_view, PostTransform> kNames[] = {
      {"NONE", PostTransform::kNone},
      {"LOGISTIC", PostTransform::kLogistic},
      {"SOFTMAX", PostTransform::kSoftmax},
      {"SOFTMAX_ZERO", PostTransform::kSoftmaxZero},
      {"PROBIT", PostTransform::kProbit}};
  for (const auto& [known, post] : kNames) {
    if (known == name) return post;
  }
  return InvalidArgument("there is no post_transform '" + std::string(name) +
                         "'");
}

void ApplyPostTransform(PostTransform post, std::span<double> scores) {
  switch (post) {
    case PostTransform::kNone:
      return;
    case PostTransform::kLogistic:
      for (double& score : scores) score = Logistic(score);
      return;
    case PostTransform::kProbit:
      for (double& score : scores) score = Probit(score);
      return;
    case PostTransform::kSoftmax:
    case PostTransform::kSoftmaxZero:
      if (!scores.empty()) Softmax(scores, post == PostTransform::kSoftmaxZero);
      return;
  }
}

size_t ClassifierHead::num_answered(size_t num_scores) const {
  return binary == Binary::kNo || binary == Binary::kSingle ? num_scores : 2;
}

size_t ClassifierHead::Classify(std::span<double> scores,
                                size_t num_scores) const {
  if (!base.empty()) {
    for (size_t k = 0; k < num_scores && k < base.size(); ++k) {
      scores[k] += base[k];
    }
  }
  const auto last = num_labels() - 1;
  if (binary == Binary::kNo) {
    const auto best = std::max_element(
        scores.begin(), scores.begin() + static_cast<int64_t>(num_scores));
    const auto at = static_cast<size_t>(best - scores.begin());
    ApplyPostTransform(post, scores.first(num_scores));
    return std::min(at, last);
  }
  const double score = scores[0];
  const bool second = score > (binary == Binary::kHalf ? 0.5 : 0.0);
  const size_t label = second ? std::min<size_t>(1, last) : 0;
  if (binary == Binary::kSingle) {
    ApplyPostTransform(post, scores.first(1));
    return label;
  }
  if (post == PostTransform::kProbit) {
    scores[0] = scores[1] = Probit(score);
    return label;
  }
  if (binary == Binary::kHalf) {
    scores[0] = 1 - score;
    scores[1] = score;
    return label;
  }
  if (post == PostTransform::kLogistic) {
    scores[0] = Logistic(-score);
    scores[1] = Logistic(score);
    return label;
  }
  scores[0] = -score;
  scores[1] = score;
  if (post != PostTransform::kNone && binary == Binary::kLinear) {
    ApplyPostTransform(post, scores.first(2));
  }
  return label;
}

}  // namespace millrace::models::graph
