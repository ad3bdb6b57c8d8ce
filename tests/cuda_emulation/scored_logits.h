// Logits of all positions of a prompt, and how far those of two runners are
// apart.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "models/llm/teacher_forcing.h"

namespace millrace::models {

inline std::vector<int32_t> SomeTokens(int32_t n, int32_t vocabulary = 260) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < n; ++i) tokens.push_back(3 + i * 37 % vocabulary);
  return tokens;
}

// `chunk` tokens a step.
inline std::vector<std::vector<float>> AllLogits(
    LlmModel& model, std::span<const int32_t> tokens, int32_t chunk) {
  std::vector<std::vector<float>> all;
  const Status status =
      ScoreTokens(model, tokens, chunk, [&](int32_t, auto logits) {
        all.emplace_back(logits.begin(), logits.end());
      });
  EXPECT_TRUE(status.ok()) << status.ToString();
  return all;
}

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
