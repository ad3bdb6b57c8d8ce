// Utilisation of the machine: model bandwidth and model FLOPs utilisation (MBU,
// MFU), as shares of the peak bandwidth and peak operations that were measured.
//
// Never above 1: the measurement reads the packed weights themselves, but what
// else runs on the machine can lower it, and keys and values may stay in a
// nearer cache. A step that goes beyond a peak raises it to what the step did.
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

  // True when it raised a peak.
  bool Add(const models::StepAccount& step, double seconds);
  // Of bytes that had to be read, of multiply-adds that had to be done; 0
  // before the first step and where no peak is known.
  double bandwidth() const;
  double compute() const;
  // As raised so far.
  const models::RunnerRoofline& roofline() const { return roofline_; }

 private:
  models::RunnerRoofline roofline_;
  // Exponentially forgotten sums.
  double seconds_ = 0;
  double bytes_ = 0;
  double mac_seconds_ = 0;  // at the peaks, as raised
};

}  // namespace millrace::scheduler
