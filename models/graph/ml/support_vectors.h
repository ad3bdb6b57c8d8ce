// Support vector machines as ai.onnx.ml describes them: libsvm's, or linear.
// Immutable once made.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/graph/ml/scores.h"

namespace millrace::models::graph {

struct SupportVectors {
  enum class Kernel : uint8_t { kLinear, kPoly, kRbf, kSigmoid };
  Kernel kernel = Kernel::kLinear;
  double gamma = 0;
  double coef0 = 0;
  double degree = 0;
  int64_t num_features = 0;
  int64_t num_vectors = 0;  // 0: linear, a row of coefficients for each class
  std::vector<float> vectors;  // [num_vectors, num_features]
  std::vector<double> coefficients;
  std::vector<double> rho;

  // ---- of a classifier ----
  std::vector<int64_t> vectors_of;  // each class, where there are vectors
  std::vector<double> prob_a;       // of each pair of classes; or empty
  std::vector<double> prob_b;
  ClassifierHead head;

  // ---- of a regressor ----
  bool one_class = false;

  int64_t num_classes() const {
    return static_cast<int64_t>(num_vectors > 0 ? vectors_of.size()
                                                : head.num_labels());
  }
  int64_t num_scores() const;  // that Classify writes

  double Regress(std::span<const double> x) const;
  // The index of the label. `scores` has num_scores values and is written.
  size_t Classify(std::span<const double> x, std::span<double> scores) const;

 private:
  double KernelOf(std::span<const double> x, const float* vector) const;
  size_t ClassifyPairs(std::span<const double> x,
                       std::span<double> scores) const;
};

StatusOr<SupportVectors::Kernel> SvmKernelNamed(std::string_view name);

}  // namespace millrace::models::graph
