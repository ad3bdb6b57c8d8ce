// Utilisation of the machine: model bandwidth and model FLOPs utilisation (MBU,
// MFU), as shares of the peak bandwidth and peak operations that were measured.
//
// Averages over the last seconds of running time; a pause does not count, since
// an idle machine says nothing of the kernels.
//
// Engine thread only.
#pragma once

#include "models/llm/runner.h"

namespace millrace::scheduler {

class Utilization {
 public:
  explicit Utilization(const models::RunnerRoofline& roofline)
      : roofline_(roofline) {}

  void Add(const models::StepAccount& step, double seconds);
  // Of bytes that had to be read, of multiply-adds that had to be done; 0
  // before the first step and where no peak is known.
  double bandwidth() const;
  double compute() const;

 private:
  models::RunnerRoofline roofline_;
  // Exponentially forgotten sums.
  double seconds_ = 0;
  double bytes_ = 0;
  double mac_seconds_ = 0;  // at the peaks
};

}  // namespace millrace::scheduler
