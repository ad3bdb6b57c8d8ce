// How far the logits of two runners are apart.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace millrace::models {

// RMS error of logits over their RMS.
inline double Difference(const std::vector<std::vector<float>>& a,
                         const std::vector<std::vector<float>>& b) {
  double error = 0, size = 0;
  EXPECT_EQ(a.size(), b.size());
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    for (size_t j = 0; j < a[i].size(); ++j) {
      error += std::pow(a[i][j] - b[i][j], 2);
      size += std::pow(b[i][j], 2);
    }
  }
  return std::sqrt(error / size);
}

}  // namespace millrace::models
