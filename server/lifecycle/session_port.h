// What `session` in a model's config.yaml declares of its sessions
// (config/session_settings.h), checked against the model, and what is told of
// the sound that they bring.
//
// Immutable; thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/base/metrics.h"
#include "config/base/status.h"
#include "config/session_settings.h"
#include "models/tensor/tensor_spec.h"

namespace millrace::server {

// OK where pcm16 can be put into this input: FP32, INT32 and INT16.
Status CheckTakesPcm16(const models::TensorSpec& input);

class SessionPort {
 public:
  // `registry` may be null. INVALID_ARGUMENT names an input that the model does
  // not have, or that takes no such samples.
  static StatusOr<std::shared_ptr<const SessionPort>> Create(
      const config::SessionSettings& settings, const std::string& model,
      const std::vector<models::TensorSpec>& inputs, MetricRegistry* registry);

  const config::SessionSettings& settings() const { return settings_; }
  // One message: so many seconds of sound, computed in so many seconds.
  void Observe(double audio_seconds, double compute_seconds) const;

 private:
  SessionPort(const config::SessionSettings& settings, const std::string& model,
              MetricRegistry* registry);

  const config::SessionSettings settings_;
  Counter audio_;
  Counter compute_;
  Histogram factor_;
};

}  // namespace millrace::server
