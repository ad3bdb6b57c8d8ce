#include "models/graph/ml/support_vectors.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace millrace::models::graph {
namespace {

// Probabilities of the classes from those of their pairs: Wu, Lin and Weng,
// "Probability estimates for multi-class classification by pairwise coupling",
// 2004, the second method, as libsvm iterates it. r is [k, k].
void CouplePairs(size_t k, const std::vector<double>& r, std::span<double> p) {
  std::vector<double> q(k * k, 0.0);
  std::vector<double> qp(k, 0.0);
  for (size_t t = 0; t < k; ++t) {
    p[t] = 1.0 / static_cast<double>(k);
    for (size_t j = 0; j < k; ++j) {
      if (j == t) continue;
      q[t * k + t] += r[j * k + t] * r[j * k + t];
      q[t * k + j] = j < t ? q[j * k + t] : -r[j * k + t] * r[t * k + j];
    }
  }
  const double enough = 0.005 / static_cast<double>(k);
  const size_t most = std::max<size_t>(100, k);
  for (size_t round = 0; round < most; ++round) {
    double pqp = 0;
    for (size_t t = 0; t < k; ++t) {
      qp[t] = 0;
      for (size_t j = 0; j < k; ++j) qp[t] += q[t * k + j] * p[j];
      pqp += p[t] * qp[t];
    }
    double error = 0;
    for (size_t t = 0; t < k; ++t) {
      error = std::max(error, std::abs(qp[t] - pqp));
    }
    if (error < enough) return;
    for (size_t t = 0; t < k; ++t) {
      const double step = (pqp - qp[t]) / q[t * k + t];
      p[t] += step;
      pqp = (pqp + step * (step * q[t * k + t] + 2 * qp[t])) / (1 + step) /
            (1 + step);
      for (size_t j = 0; j < k; ++j) {
        qp[j] = (qp[j] + step * q[t * k + j]) / (1 + step);
        p[j] /= 1 + step;
      }
    }
  }
}

}  // namespace

StatusOr<SupportVectors::Kernel> SvmKernelNamed(std::string_view name) {
  using Kernel = SupportVectors::Kernel;
  constexpr std::pair<std::string_view, Kernel> kNames[] = {
      {"LINEAR", Kernel::kLinear},
      {"POLY", Kernel::kPoly},
      {"RBF", Kernel::kRbf},
      {"SIGMOID", Kernel::kSigmoid}};
  for (const auto& [known, kernel] : kNames) {
    if (known == name) return kernel;
  }
  return InvalidArgument("there is no kernel_type '" + std::string(name) + "'");
}

double SupportVectors::KernelOf(std::span<const double> x,
                                const float* vector) const {
  double sum = 0;
  if (kernel == Kernel::kRbf) {
    for (size_t i = 0; i < x.size(); ++i) {
      const double distance = x[i] - static_cast<double>(vector[i]);
      sum += distance * distance;
    }
    return std::exp(-gamma * sum);
  }
  for (size_t i = 0; i < x.size(); ++i) {
    sum += x[i] * static_cast<double>(vector[i]);
  }
  if (kernel == Kernel::kLinear) return sum;
  sum = gamma * sum + coef0;
  return kernel == Kernel::kPoly ? std::pow(sum, degree) : std::tanh(sum);
}

double SupportVectors::Regress(std::span<const double> x) const {
  double sum = rho[0];
  if (num_vectors == 0) {
    for (size_t i = 0; i < x.size(); ++i) sum += x[i] * coefficients[i];
  }
  for (int64_t v = 0; v < num_vectors; ++v) {
    sum += coefficients[static_cast<size_t>(v)] *
           KernelOf(x, vectors.data() + v * num_features);
  }
  if (one_class) return sum > 0 ? 1 : -1;
  return sum;
}

int64_t SupportVectors::num_scores() const {
  const int64_t classes = num_classes();
  if (num_vectors == 0 || !prob_a.empty()) return classes;
  return classes > 2 ? classes * (classes - 1) / 2 : 2;
}

size_t SupportVectors::Classify(std::span<const double> x,
                                std::span<double> scores) const {
  if (num_vectors > 0) return ClassifyPairs(x, scores);
  const auto classes = static_cast<size_t>(num_classes());
  for (size_t k = 0; k < classes; ++k) {
    scores[k] = rho[0];
    for (size_t i = 0; i < x.size(); ++i) {
      scores[k] += x[i] * coefficients[k * x.size() + i];
    }
  }
  return head.Classify(scores, classes);
}

size_t SupportVectors::ClassifyPairs(std::span<const double> x,
                                     std::span<double> scores) const {
  const size_t classes = vectors_of.size();
  const auto count = static_cast<size_t>(num_vectors);
  std::vector<double> kernels(count);
  for (size_t v = 0; v < count; ++v) {
    kernels[v] =
        KernelOf(x, vectors.data() + static_cast<int64_t>(v) * num_features);
  }
  std::vector<size_t> first(classes, 0);
  for (size_t k = 1; k < classes; ++k) {
    first[k] = first[k - 1] + static_cast<size_t>(vectors_of[k - 1]);
  }
  const auto sum_of = [&](size_t of, size_t row) {
    double sum = 0;
    for (size_t v = first[of];
         v < first[of] + static_cast<size_t>(vectors_of[of]); ++v) {
      sum += coefficients[count * row + v] * kernels[v];
    }
    return sum;
  };
  std::vector<double> pairs;
  std::vector<int64_t> votes(classes, 0);
  for (size_t i = 0; i < classes; ++i) {
    for (size_t j = i + 1; j < classes; ++j) {
      const double sum = sum_of(i, j - 1) + sum_of(j, i) + rho[pairs.size()];
      ++votes[sum > 0 ? i : j];
      pairs.push_back(sum);
    }
  }
  const auto winner = static_cast<size_t>(
      std::max_element(votes.begin(), votes.end()) - votes.begin());
  const size_t last = head.num_labels() - 1;
  if (!prob_a.empty()) {
    std::vector<double> r(classes * classes, 0.0);
    size_t at = 0;
    for (size_t i = 0; i < classes; ++i) {
      for (size_t j = i + 1; j < classes; ++j, ++at) {
        const double chance =
            1 / (1 + std::exp(prob_a[at] * pairs[at] + prob_b[at]));
        r[i * classes + j] = std::clamp(chance, 1e-7, 1 - 1e-7);
        r[j * classes + i] = 1 - r[i * classes + j];
      }
    }
    CouplePairs(classes, r, scores);
    ApplyPostTransform(head.post, scores);
    return std::min(winner, last);
  }
  if (classes == 2) {
    // One score says both; the winner stays that of the votes.
    scores[0] = pairs[0];
    head.Classify(scores, 1);
    return std::min(winner, last);
  }
  std::copy(pairs.begin(), pairs.end(), scores.begin());
  ApplyPostTransform(head.post, scores);
  return std::min(winner, last);
}

}  // namespace millrace::models::graph
