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
  mac_seconds_ =
      mac_seconds_ * keep + roofline_.MacSeconds(step.macs, step.prompt_macs);
}

double Utilization::bandwidth() const {
  const double possible = seconds_ * roofline_.read_bytes_per_s;
  return possible > 0 ? bytes_ / possible : 0;
}

double Utilization::compute() const {
  return seconds_ > 0 ? mac_seconds_ / seconds_ : 0;
}

}  // namespace millrace::scheduler
