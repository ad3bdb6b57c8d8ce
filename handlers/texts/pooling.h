// From the numbers of a text's tokens to one row, and what is done to rows.
// Sums in double precision. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "config/base/status.h"

namespace millrace::handlers {

enum class Pooling { kMean, kCls, kMax, kLast };

// "mean", "cls", "max", "last".
StatusOr<Pooling> PoolingFromName(std::string_view name);

// tokens [num_tokens, size]: those of the text, without padding; at least one.
std::vector<float> PoolTokens(Pooling pooling, std::span<const float> tokens,
                              int64_t num_tokens, int64_t size);

// To length 1; a row of zeros stays.
void Normalise(std::vector<float>& row);
void Softmax(std::vector<float>& row);
void Sigmoid(std::vector<float>& row);
// Of two rows of one size; 0 where one is all zeros.
double Cosine(std::span<const float> a, std::span<const float> b);

}  // namespace millrace::handlers
