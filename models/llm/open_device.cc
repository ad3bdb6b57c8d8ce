// The only file that knows which devices were compiled in.
#include "models/llm/cpu/cpu_device.h"
#include "models/llm/device.h"

namespace millrace::models {

StatusOr<std::unique_ptr<Device>> OpenDevice(
    const config::LlmSettings& settings, const std::string& isa,
    const config::CpuSet& cpus) {
  if (settings.device == "auto" || settings.device == "cpu") {
    return CpuDevice::Open(settings, isa, cpus);
  }
  return Unimplemented("device is '" + settings.device.substr(0, 64) +
                       "', but this build runs language models on 'cpu' alone; "
                       "set device to cpu, or leave it out")
      .At("device");
}

}  // namespace millrace::models
