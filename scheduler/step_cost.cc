// Prices are kept in milliseconds a step, a row, a sample and a thousand keys.
// The first variances decide which price explains the time of a lone decode,
// which has one of each. The step has the largest one: reading the weights
// costs far more than one row of arithmetic.
#include "scheduler/step_cost.h"

#include <algorithm>
#include <cmath>

namespace millrace::scheduler {
namespace {

constexpr double kFirstVariance[] = {400, 1, 0.04, 0.04};
// A price wanders by about 1 % of itself a step, and a little more.
constexpr double kWander = 0.01;
constexpr double kWanderFloor = 1e-4;
// A step's time is taken to be true within a tenth.
constexpr double kNoise = 0.1;
// Surprises beyond this many times the expected time are cut.
constexpr double kMostSurprise = 2.0;
constexpr double kKeysPerUnit = 1000;

}  // namespace

StepShape ShapeOfRows(int32_t begin, int32_t num_rows, int32_t num_samples) {
  const int64_t first = int64_t{begin} + 1;  // a row sees itself, too
  const int64_t last = int64_t{begin} + num_rows;
  return {.rows = num_rows,
          .samples = num_samples,
          .attended = (first + last) * num_rows / 2};
}

StepCost::Vector StepCost::Amounts(const StepShape& shape) {
  return {1.0, static_cast<double>(shape.rows),
          static_cast<double>(shape.samples),
          static_cast<double>(shape.attended) / kKeysPerUnit};
}

double StepCost::Dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (int i = 0; i < kPrices; ++i) sum += a[i] * b[i];
  return sum;
}

void StepCost::Observe(const StepShape& shape, double seconds) {
  if (num_observed_++ == 0) {
    for (int i = 0; i < kPrices; ++i) uncertainty_[i][i] = kFirstVariance[i];
  }
  const Vector amounts = Amounts(shape);
  double ms = seconds * 1e3;
  if (known()) {
    const double expected = Seconds(shape) * 1e3;
    ms = std::min(ms, std::max(expected * kMostSurprise, expected + 1.0));
  }
  for (int i = 0; i < kPrices; ++i) {
    if (uncertainty_[i][i] >= kFirstVariance[i]) continue;
    const double wander = kWander * std::abs(prices_[i]) + kWanderFloor;
    uncertainty_[i][i] += wander * wander;
  }
  Vector gain;
  for (int i = 0; i < kPrices; ++i) gain[i] = Dot(uncertainty_[i], amounts);
  const double noise = kNoise * std::max(ms, 1e-3);
  const double scale = 1.0 / (Dot(gain, amounts) + noise * noise);
  const double error = ms - Dot(prices_, amounts);
  for (int i = 0; i < kPrices; ++i) {
    prices_[i] += gain[i] * scale * error;
    for (int j = 0; j < kPrices; ++j) {
      uncertainty_[i][j] -= gain[i] * gain[j] * scale;
    }
  }
}

StepCost::Prices StepCost::prices() const {
  const auto seconds = [&](int i, double units) {
    return std::max(prices_[i], 0.0) * 1e-3 / units;
  };
  return {.step = seconds(0, 1),
          .row = seconds(1, 1),
          .sample = seconds(2, 1),
          .key = seconds(3, kKeysPerUnit)};
}

double StepCost::Added(const StepShape& shape) const {
  const Vector amounts = Amounts(shape);
  double ms = 0;
  // A price below zero is noise; without it nothing would ever be too long.
  for (int i = 1; i < kPrices; ++i) {
    ms += std::max(prices_[i], 0.0) * amounts[i];
  }
  return ms * 1e-3;
}

double StepCost::Seconds(const StepShape& shape) const {
  return std::max(prices_[0], 0.0) * 1e-3 + Added(shape);
}

}  // namespace millrace::scheduler
