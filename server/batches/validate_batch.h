// Whether a file can be the input of a batch, line by line. Pure function.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/batches/batch.h"

namespace millrace::server {

inline constexpr int64_t kMostLines = 50'000;  // as OpenAI allows

struct BatchCheck {
  std::vector<BatchError> errors;  // the first 100; empty: it can
  int64_t total = 0;               // requests
  std::string model;               // of all; empty: they name none
};

BatchCheck ValidateBatch(std::string_view input, std::string_view endpoint,
                         int64_t most_lines = kMostLines);

}  // namespace millrace::server
