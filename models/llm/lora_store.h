// Where a device with memory of its own keeps LoRA adapters. They are put there
// while they load, so that one for which there is no memory is refused then,
// and leave with the last sequence and the last name that uses them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "config/base/status.h"
#include "models/llm/lora_packing.h"

namespace millrace::models {

// An adapter in such memory; what it looks like is the device's own affair. May
// be destroyed by any thread.
class LoraOnDevice {
 public:
  virtual ~LoraOnDevice() = default;
  virtual int64_t num_bytes() const = 0;
};

// Thread-safe.
class LoraStore {
 public:
  virtual ~LoraStore() = default;
  // Returns once the device has it. RESOURCE_EXHAUSTED where there is no
  // memory; `name` is for the message.
  virtual StatusOr<std::shared_ptr<const LoraOnDevice>> Put(
      const LoraFloatLayers& layers, const std::string& name) = 0;
};

}  // namespace millrace::models
