// The only file that knows which devices were compiled in.
#include "config/base/log.h"
#include "models/gpu/cuda_context.h"
#include "models/llm/cpu/cpu_device.h"
#include "models/llm/cuda/cuda_device.h"
#include "models/llm/device.h"

namespace millrace::models {

StatusOr<std::unique_ptr<Device>> OpenDevice(
    const std::string& name, const config::LlmSettings& settings,
    const std::string& isa, const config::CpuSet& cpus) {
  if (name == "cpu") return CpuDevice::Open(settings, isa, cpus);
  if (name == "auto") {
    StatusOr<std::unique_ptr<Device>> gpu =
        CudaDevice::Open(settings, isa, cpus, 0);
    if (gpu.ok()) return gpu;
    LogInfo("language models run on the CPU",
            {{"why", gpu.status().message()}});
    return CpuDevice::Open(settings, isa, cpus);
  }
  ASSIGN_OR_RETURN(const int32_t ordinal, CudaOrdinal(name));
  return CudaDevice::Open(settings, isa, cpus, ordinal);
}

}  // namespace millrace::models
