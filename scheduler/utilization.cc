#include "scheduler/utilization.h"

#include <algorithm>
#include <cmath>

namespace millrace::scheduler {
namespace {

constexpr double kMemorySeconds = 5;

}  // namespace

bool Utilization::Add(const models::StepAccount& step, double seconds) {
  if (seconds <= 0) return false;
  bool raised = false;
  const double step_bytes = step.weight_bytes + step.kv_bytes;
  if (roofline_.read_bytes_per_s > 0 &&
      step_bytes > roofline_.read_bytes_per_s * seconds) {
    roofline_.read_bytes_per_s = step_bytes / seconds;
    raised = true;
  }
  const double excess =
      roofline_.MacSeconds(step.macs, step.prompt_macs) / seconds;
  if (excess > 1) {
    roofline_.macs_per_s *= excess;
    roofline_.prompt_macs_per_s *= excess;
    mac_seconds_ /= excess;
    raised = true;
  }
  const double keep = std::exp(-seconds / kMemorySeconds);
  seconds_ = seconds_ * keep + seconds;
  bytes_ = bytes_ * keep + step_bytes;
  mac_seconds_ =
      mac_seconds_ * keep + roofline_.MacSeconds(step.macs, step.prompt_macs);
  return raised;
}

double Utilization::bandwidth() const {
  const double possible = seconds_ * roofline_.read_bytes_per_s;
  // Rounding could leave a last digit beyond 1.
  return possible > 0 ? std::min(bytes_ / possible, 1.0) : 0;
}

double Utilization::compute() const {
  return seconds_ > 0 ? std::min(mac_seconds_ / seconds_, 1.0) : 0;
}

}  // namespace millrace::scheduler
