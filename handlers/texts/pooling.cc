#include "handlers/texts/pooling.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "config/base/utf8.h"

namespace millrace::handlers {

StatusOr<Pooling> PoolingFromName(std::string_view name) {
  if (name == "mean") return Pooling::kMean;
  if (name == "cls") return Pooling::kCls;
  if (name == "max") return Pooling::kMax;
  if (name == "last") return Pooling::kLast;
  return InvalidArgument("pooling is '" + Shortened(name, 60) +
                         "' but must be one of: mean, cls, max, last")
      .At("pooling");
}

std::vector<float> PoolTokens(Pooling pooling, std::span<const float> tokens,
                              int64_t num_tokens, int64_t size) {
  const auto row = [&](int64_t i) {
    return tokens.subspan(static_cast<size_t>(i * size),
                          static_cast<size_t>(size));
  };
  if (pooling == Pooling::kCls || pooling == Pooling::kLast) {
    const auto one = row(pooling == Pooling::kCls ? 0 : num_tokens - 1);
    return {one.begin(), one.end()};
  }
  std::vector<float> out(static_cast<size_t>(size));
  for (size_t c = 0; c < out.size(); ++c) {
    double sum = 0;
    float most = row(0)[c];
    for (int64_t i = 0; i < num_tokens; ++i) {
      sum += row(i)[c];
      most = std::max(most, row(i)[c]);
    }
    out[c] = pooling == Pooling::kMax
                 ? most
                 : static_cast<float>(sum / static_cast<double>(num_tokens));
  }
  return out;
}

void Normalise(std::vector<float>& row) {
  double squares = 0;
  for (const float v : row) squares += static_cast<double>(v) * v;
  if (squares == 0) return;
  const double factor = 1 / std::sqrt(squares);
  for (float& v : row) v = static_cast<float>(v * factor);
}

void Softmax(std::vector<float>& row) {
  if (row.empty()) return;
  const double most = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float v : row) sum += std::exp(v - most);
  for (float& v : row) v = static_cast<float>(std::exp(v - most) / sum);
}

void Sigmoid(std::vector<float>& row) {
  for (float& v : row) {
    v = static_cast<float>(1 / (1 + std::exp(-static_cast<double>(v))));
  }
}

double Cosine(std::span<const float> a, std::span<const float> b) {
  double dot = 0;
  double aa = 0;
  double bb = 0;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    dot += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return aa == 0 || bb == 0 ? 0 : dot / std::sqrt(aa * bb);
}

}  // namespace millrace::handlers
