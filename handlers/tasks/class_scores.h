// From a row of a classifier's output to the best classes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/tensor/tensor.h"

namespace millrace::handlers {

struct ClassScore {
  int64_t class_idx = 0;
  double score = 0;
};

// "softmax" (also "auto"), "sigmoid" or "none", in place.
void Activate(const std::string& activation, std::vector<double>& scores);

// The best `count`, best first, the lower class first among equals; 0: all.
// A NaN is no score: INTERNAL.
StatusOr<std::vector<ClassScore>> BestScores(std::span<const double> scores,
                                             int64_t count);

// The values of a float tensor. INTERNAL where it is of another type.
StatusOr<std::vector<double>> Reals(const models::Tensor& tensor);

}  // namespace millrace::handlers
