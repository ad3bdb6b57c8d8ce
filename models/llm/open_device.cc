// The only file that knows which devices were compiled in.
#include <charconv>
#include <optional>

#include "config/base/log.h"
#include "models/llm/cpu/cpu_device.h"
#include "models/llm/cuda/cuda_device.h"
#include "models/llm/device.h"

namespace millrace::models {
namespace {

// "cuda": 0, "cuda:3": 3.
std::optional<int32_t> CudaOrdinal(std::string_view name) {
  if (!name.starts_with("cuda")) return std::nullopt;
  name.remove_prefix(4);
  if (name.empty()) return 0;
  int32_t ordinal = 0;
  const auto [end, error] =
      std::from_chars(name.data() + 1, name.data() + name.size(), ordinal);
  if (name[0] != ':' || error != std::errc() || ordinal < 0 ||
      end != name.data() + name.size()) {
    return std::nullopt;
  }
  return ordinal;
}

}  // namespace

StatusOr<std::unique_ptr<Device>> OpenDevice(
    const config::LlmSettings& settings, const std::string& isa,
    const config::CpuSet& cpus) {
  const std::string& name = settings.device;
  if (name == "cpu") return CpuDevice::Open(settings, isa, cpus);
  if (name == "auto") {
    StatusOr<std::unique_ptr<Device>> gpu =
        CudaDevice::Open(settings, isa, cpus, 0);
    if (gpu.ok()) return gpu;
    LogInfo("language models run on the CPU",
            {{"why", gpu.status().message()}});
    return CpuDevice::Open(settings, isa, cpus);
  }
  if (const std::optional<int32_t> ordinal = CudaOrdinal(name)) {
    return CudaDevice::Open(settings, isa, cpus, *ordinal);
  }
  return InvalidArgument("device is '" + name.substr(0, 64) +
                         "'; cpu, cuda:0 (or another number) and auto exist")
      .At("device");
}

}  // namespace millrace::models
