#include "scheduler/utilization.h"

#include <cmath>

namespace millrace::scheduler {
namespace {

constexpr double kMemorySeconds = 5;

}  // namespace

void Utilization::Add(const models::StepAccount& step, double seconds) {
  const double keep = std::exp(-seconds / kMemorySeconds);
  seconds_ = seconds_ * keep + seconds;
  bytes_ = bytes_ * keep + step.weight_bytes + step.kv_bytes;
  macs_ = macs_ * keep + step.macs;
}

double Utilization::bandwidth() const {
  const double possible = seconds_ * peaks_.read_bytes_per_s;
  return possible > 0 ? bytes_ / possible : 0;
}

double Utilization::compute() const {
  const double possible = seconds_ * peaks_.macs_per_s;
  return possible > 0 ? macs_ / possible : 0;
}

}  // namespace millrace::scheduler
