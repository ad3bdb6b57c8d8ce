// What a step costs, learnt from the steps that ran: the time of a step is
// taken for a sum of four prices,
//
//   seconds = step + rows * row + samples * sample + attended * key
//
// where rows are all rows of a step, samples those that leave through the head
// and attended the keys that the rows look at, all together. The prices are
// kept by a Kalman filter: each step corrects them along what it had much of,
// in proportion to how uncertain that is; what a step says nothing about stays.
// A step that took much longer than the prices say (others had the core)
// counts as a little longer only.
//
//   StepCost cost;
//   cost.Observe(shape, seconds);          // after each step
//   if (cost.known()) cost.Seconds(shape); // before one
//
// Deterministic, without a clock. Engine thread only.
// Source: Kalman 1960, with a random walk of the prices as the model.
#pragma once

#include <array>
#include <cstdint>

namespace millrace::scheduler {

struct StepShape {
  int64_t rows = 0;
  int64_t samples = 0;
  int64_t attended = 0;

  StepShape& operator+=(const StepShape& other) {
    rows += other.rows;
    samples += other.samples;
    attended += other.attended;
    return *this;
  }
};

// Of `num_rows` rows of one sequence that begin at position `begin`.
StepShape ShapeOfRows(int32_t begin, int32_t num_rows, int32_t num_samples);

class StepCost {
 public:
  void Observe(const StepShape& shape, double seconds);

  // Seconds of one each; none below zero.
  struct Prices {
    double step = 0;
    double row = 0;
    double sample = 0;
    double key = 0;
  };
  Prices prices() const;

  // Enough steps were seen to say anything.
  bool known() const { return num_observed_ >= kEnoughSteps; }
  // Of a whole step, and of what is added to one.
  double Seconds(const StepShape& shape) const;
  double Added(const StepShape& shape) const;

 private:
  static constexpr int kPrices = 4;
  static constexpr int64_t kEnoughSteps = 4;
  using Vector = std::array<double, kPrices>;

  static Vector Amounts(const StepShape& shape);
  static double Dot(const Vector& a, const Vector& b);

  int64_t num_observed_ = 0;
  Vector prices_ = {};
  std::array<Vector, kPrices> uncertainty_ = {};
};

}  // namespace millrace::scheduler
