#include "handlers/tasks/class_scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace millrace::handlers {

void Activate(const std::string& activation, std::vector<double>& scores) {
  if (activation == "sigmoid") {
    for (double& score : scores) score = 1.0 / (1.0 + std::exp(-score));
    return;
  }
  if (activation == "none" || scores.empty()) return;
  const double most = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) {
    score = std::exp(score - most);
    sum += score;
  }
  for (double& score : scores) score /= sum;
}

StatusOr<std::vector<ClassScore>> BestScores(std::span<const double> scores,
                                             int64_t count) {
  std::vector<ClassScore> all;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (std::isnan(scores[i])) {
      return Internal("the model's score of class " + std::to_string(i) +
                      " is no number");
    }
    all.push_back({static_cast<int64_t>(i), scores[i]});
  }
  const auto size = static_cast<int64_t>(all.size());
  const int64_t wanted = count == 0 ? size : std::min(count, size);
  std::partial_sort(all.begin(), all.begin() + wanted, all.end(),
                    [](const ClassScore& a, const ClassScore& b) {
                      return a.score != b.score ? a.score > b.score
                                                : a.class_idx < b.class_idx;
                    });
  all.resize(static_cast<size_t>(wanted));
  return all;
}

StatusOr<std::vector<double>> Reals(const models::Tensor& tensor) {
  const auto size = static_cast<size_t>(tensor.num_elements());
  std::vector<double> values(size);
  if (tensor.dtype() == models::DType::kF32) {
    std::copy_n(tensor.data<float>(), size, values.begin());
  } else if (tensor.dtype() == models::DType::kF64) {
    std::copy_n(tensor.data<double>(), size, values.begin());
  } else if (tensor.dtype() == models::DType::kI64) {
    std::transform(tensor.data<int64_t>(), tensor.data<int64_t>() + size,
                   values.begin(),
                   [](int64_t v) { return static_cast<double>(v); });
  } else if (tensor.dtype() == models::DType::kI32) {
    std::copy_n(tensor.data<int32_t>(), size, values.begin());
  } else {
    return Internal("the model gives " +
                    models::TypeText(tensor.dtype(), tensor.shape()) +
                    ", which the task cannot read");
  }
  return values;
}

}  // namespace millrace::handlers
