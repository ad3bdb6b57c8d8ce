// What a runner offers beside Runner when a device with a clock of its own runs
// its steps.
#pragma once

#include <string>

#include "models/llm/runner.h"

namespace millrace::models {

class RunnerOnDevice {
 public:
  virtual ~RunnerOnDevice() = default;
  // "cuda:0"
  virtual std::string device() const = 0;
};

// That runs the steps of the runner: "cpu" for those that say nothing.
inline std::string DeviceOf(const Runner& runner) {
  const auto* placed = dynamic_cast<const RunnerOnDevice*>(&runner);
  return placed == nullptr ? "cpu" : placed->device();
}

}  // namespace millrace::models
