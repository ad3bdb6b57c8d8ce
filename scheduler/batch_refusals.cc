#include "scheduler/batch_refusals.h"

#include <algorithm>
#include <chrono>

namespace millrace::scheduler {
namespace {

using models::TensorSpec;
using models::graph::Port;

std::string Milliseconds(Clock::Duration duration) {
  return std::to_string(
      std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

}  // namespace

Status DropStatus(BatchDrop why, Clock::Duration waited,
                  const std::string& model) {
  const std::string in_queue =
      Milliseconds(waited) + " ms in the queue of model '" + model + "'";
  switch (why) {
    case BatchDrop::kClientGone:
      return Cancelled("the client left before its request began");
    case BatchDrop::kDeadlinePassed:
      return DeadlineExceeded(
          "the deadline passed after the request had waited " + in_queue +
          "; give it more time or send it later");
    case BatchDrop::kDeadlineTooNear:
      return DeadlineExceeded(
          "the deadline was too near to compute the request after it had "
          "waited " +
          in_queue + "; give it more time or send it later");
    case BatchDrop::kQueueTimeout:
      return Unavailable("the request timed out after " + in_queue +
                         "; send it later or raise the queue policy's timeout");
    case BatchDrop::kClosed:
      break;
  }
  return Unavailable("model '" + model +
                     "' was drained before the request began");
}

Status DeadlineTooNear(Clock::Duration left, Clock::Duration wait,
                       const std::string& model) {
  return DeadlineExceeded("the deadline is " + Milliseconds(left) +
                          " ms away but model '" + model +
                          "' would answer in about " + Milliseconds(wait) +
                          " ms; give it more time or send it later")
      .RetryAfterMs(
          std::max<int64_t>(wait / std::chrono::milliseconds(1), 1000));
}

Status WhyUnwanted(const BatchJob& job, Clock::Time now,
                   const std::string& model) {
  if (job.task.stop.stop_requested()) {
    return Cancelled("the client left while its request was computed");
  }
  if (job.task.deadline <= now) {
    return DeadlineExceeded("the deadline passed while model '" + model +
                            "' computed the request; give it more time");
  }
  return OkStatus();
}

Status TooManyRows(int32_t rows, int32_t max_batch_size,
                   const std::string& model) {
  return InvalidArgument("the request has " + std::to_string(rows) +
                         " rows but max_batch_size of model '" + model +
                         "' is " + std::to_string(max_batch_size) +
                         "; send fewer rows at a time or raise max_batch_size");
}

std::vector<TensorSpec> SpecsOf(
    const std::vector<Port>& ports,
    const std::vector<models::graph::Symbol>& symbols) {
  std::vector<TensorSpec> specs;
  for (const Port& port : ports) {
    TensorSpec& spec = specs.emplace_back();
    spec.name = port.name;
    spec.dtype = port.dtype;
    spec.rank_known = port.rank_known;
    for (const models::graph::PortDim& dim : port.dims) {
      spec.dims.push_back(dim.symbol < 0 ? dim.size : -1);
    }
    spec.text = models::graph::PortText(port, symbols);
  }
  return specs;
}

std::vector<std::string> NamesOf(const std::vector<Port>& ports) {
  std::vector<std::string> names;
  for (const Port& port : ports) names.push_back(port.name);
  return names;
}

}  // namespace millrace::scheduler
