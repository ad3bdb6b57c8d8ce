#include "server/lifecycle/session_port.h"

#include <algorithm>

namespace millrace::server {
namespace {

// Shares of real time: a hundredth of it is usual, above 1 is too slow.
const std::vector<double>& FactorBuckets() {
  static const std::vector<double> bounds = {
      0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5};
  return bounds;
}

}  // namespace

Status CheckTakesPcm16(const models::TensorSpec& input) {
  if (input.dtype == models::DType::kF32 ||
      input.dtype == models::DType::kI32 ||
      input.dtype == models::DType::kI16) {
    return OkStatus();
  }
  return InvalidArgument(
             "encoding is pcm16, which an FP32, INT32 or INT16 "
             "input takes, and '" +
             input.name + "' is " + std::string(DTypeName(input.dtype)))
      .At("encoding");
}

StatusOr<std::shared_ptr<const SessionPort>> SessionPort::Create(
    const config::SessionSettings& settings, const std::string& model,
    const std::vector<models::TensorSpec>& inputs, MetricRegistry* registry) {
  if (!settings.input.empty()) {
    const auto input = std::find_if(
        inputs.begin(), inputs.end(),
        [&](const auto& each) { return each.name == settings.input; });
    if (input == inputs.end()) {
      std::string all;
      for (const models::TensorSpec& each : inputs) {
        all.append(all.empty() ? "'" : ", '").append(each.name).append("'");
      }
      return InvalidArgument("session: input '" + settings.input +
                             "' is not one of the model, which has " + all)
          .At("session");
    }
    if (settings.pcm16) {
      RETURN_IF_ERROR(CheckTakesPcm16(*input).Prefixed("session"));
    }
  }
  return std::shared_ptr<const SessionPort>(
      new SessionPort(settings, model, registry));
}

SessionPort::SessionPort(const config::SessionSettings& settings,
                         const std::string& model, MetricRegistry* registry)
    : settings_(settings) {
  if (registry == nullptr || settings.sample_rate == 0) return;
  const MetricLabels labels = {{"model", model}};
  audio_ = registry->AddCounter(
      "millrace_session_audio_seconds_total",
      "Seconds of sound that sessions sent and the model answered.", labels);
  compute_ = registry->AddCounter(
      "millrace_session_compute_seconds_total",
      "Seconds that the model computed for that sound, a batch's shared by its "
      "requests; divided by the sound's it is the real-time factor.",
      labels);
  factor_ = registry->AddHistogram(
      "millrace_session_real_time_factor",
      "Compute time of a message by the time of its sound; above 1 the model "
      "is slower than its speaker.",
      FactorBuckets(), labels);
}

void SessionPort::Observe(double audio_seconds, double compute_seconds) const {
  if (audio_seconds <= 0) return;
  audio_.Add(audio_seconds);
  compute_.Add(compute_seconds);
  factor_.Observe(compute_seconds / audio_seconds);
}

}  // namespace millrace::server
