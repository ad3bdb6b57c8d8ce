// Source: NVML API Reference Guide, NVIDIA. Its functions return 0 for success;
// they may be called from any thread.
#include "server/gpu_metrics.h"

#include <dlfcn.h>

#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "config/base/variable.h"

namespace millrace::server {
namespace {

using NvmlDevice = void*;
struct NvmlUtilization {
  unsigned gpu;     // percent
  unsigned memory;  // percent
};
struct NvmlMemory {
  unsigned long long total, free, used;  // bytes
};

constexpr unsigned kMostGpus = 64;
constexpr unsigned kUuidBytes = 96;

// The library, initialised for as long as this lives.
struct Nvml {
  static std::unique_ptr<Nvml> Open();
  Nvml() = default;
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    if (shutdown_ != nullptr) shutdown_();
  }

  int (*count)(unsigned*) = nullptr;
  int (*handle_by_index)(unsigned, NvmlDevice*) = nullptr;
  int (*uuid)(NvmlDevice, char*, unsigned) = nullptr;
  int (*utilization)(NvmlDevice, NvmlUtilization*) = nullptr;
  int (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  int (*power)(NvmlDevice, unsigned*) = nullptr;             // mW
  int (*power_limit)(NvmlDevice, unsigned*) = nullptr;       // mW
  int (*energy)(NvmlDevice, unsigned long long*) = nullptr;  // mJ

 private:
  int (*shutdown_)() = nullptr;
};

std::unique_ptr<Nvml> Nvml::Open() {
  const char* named = Variable("MILLRACE_NVML");
  // Never closed: its threads and exit handlers are its own.
  void* library = dlopen(named != nullptr ? named : "libnvidia-ml.so.1",
                         RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
        dlsym(library, name));
    return function != nullptr;
  };
  auto nvml = std::make_unique<Nvml>();
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const bool complete =
      find("nvmlInit_v2", init) && find("nvmlShutdown", shutdown) &&
      find("nvmlDeviceGetCount_v2", nvml->count) &&
      find("nvmlDeviceGetHandleByIndex_v2", nvml->handle_by_index) &&
      find("nvmlDeviceGetUUID", nvml->uuid) &&
      find("nvmlDeviceGetUtilizationRates", nvml->utilization) &&
      find("nvmlDeviceGetMemoryInfo", nvml->memory) &&
      find("nvmlDeviceGetPowerUsage", nvml->power) &&
      find("nvmlDeviceGetEnforcedPowerLimit", nvml->power_limit) &&
      find("nvmlDeviceGetTotalEnergyConsumption", nvml->energy);
  if (!complete || init() != 0) return nullptr;
  nvml->shutdown_ = shutdown;
  return nvml;
}

// One GPU. A series is made once the GPU tells its value for the first time.
class Gpu {
 public:
  Gpu(NvmlDevice device, MetricLabels labels)
      : device_(device), labels_(std::move(labels)) {}
  void Read(const Nvml& nvml, MetricRegistry& registry);

 private:
  void Show(std::optional<Gauge>& gauge, MetricRegistry& registry,
            const char* name, const char* help, double value,
            const char* state = nullptr);

  NvmlDevice device_;
  MetricLabels labels_;
  std::optional<Gauge> utilization_, total_, used_, used_share_;
  std::optional<Gauge> power_, power_limit_;
  std::optional<Counter> energy_;
  unsigned long long energy_before_ = 0;  // mJ
};

void Gpu::Show(std::optional<Gauge>& gauge, MetricRegistry& registry,
               const char* name, const char* help, double value,
               const char* state) {
  if (!gauge.has_value()) {
    MetricLabels labels = labels_;
    if (state != nullptr) labels["state"] = state;
    gauge = registry.AddGauge(name, help, labels);
  }
  gauge->Set(value);
}

void Gpu::Read(const Nvml& nvml, MetricRegistry& registry) {
  NvmlUtilization busy{};
  if (nvml.utilization(device_, &busy) == 0) {
    Show(utilization_, registry, "millrace_gpu_utilization_ratio",
         "Share of the last moments in which the GPU ran a kernel.",
         busy.gpu / 100.0);
  }
  constexpr char kMemory[] = "millrace_gpu_memory_bytes";
  constexpr char kMemoryHelp[] = "Memory of the GPU by state.";
  NvmlMemory memory{};
  if (nvml.memory(device_, &memory) == 0) {
    Show(total_, registry, kMemory, kMemoryHelp,
         static_cast<double>(memory.total), "total");
    Show(used_, registry, kMemory, kMemoryHelp,
         static_cast<double>(memory.used), "used");
    if (memory.total > 0) {
      Show(
          used_share_, registry, "millrace_gpu_memory_utilization_ratio",
          "Share of the GPU's memory that is in use.",
          static_cast<double>(memory.used) / static_cast<double>(memory.total));
    }
  }
  unsigned milliwatts = 0;
  if (nvml.power(device_, &milliwatts) == 0) {
    Show(power_, registry, "millrace_gpu_power_watts",
         "What the GPU draws now.", milliwatts / 1e3);
  }
  if (nvml.power_limit(device_, &milliwatts) == 0) {
    Show(power_limit_, registry, "millrace_gpu_power_limit_watts",
         "What the GPU may draw.", milliwatts / 1e3);
  }
  unsigned long long millijoules = 0;
  if (nvml.energy(device_, &millijoules) == 0) {
    if (!energy_.has_value()) {
      energy_ = registry.AddCounter(
          "millrace_gpu_energy_joules_total",
          "What the GPU has drawn since this server started.", labels_);
    } else if (millijoules > energy_before_) {
      energy_->Add(static_cast<double>(millijoules - energy_before_) / 1e3);
    }
    energy_before_ = millijoules;
  }
}

struct GpuMetrics {
  std::unique_ptr<Nvml> nvml;
  MetricRegistry* registry;  // outlives what it calls
  std::vector<Gpu> gpus;

  void Read() {
    for (Gpu& gpu : gpus) gpu.Read(*nvml, *registry);
  }
};

}  // namespace

std::shared_ptr<void> ExportGpuMetrics(MetricRegistry& registry) {
  std::unique_ptr<Nvml> nvml = Nvml::Open();
  unsigned count = 0;
  if (nvml == nullptr || nvml->count(&count) != 0) return nullptr;
  auto metrics = std::make_shared<GpuMetrics>();
  metrics->nvml = std::move(nvml);
  metrics->registry = &registry;
  for (unsigned i = 0; i < std::min(count, kMostGpus); ++i) {
    NvmlDevice device = nullptr;
    char uuid[kUuidBytes] = {};
    if (metrics->nvml->handle_by_index(i, &device) != 0 ||
        metrics->nvml->uuid(device, uuid, kUuidBytes) != 0) {
      continue;
    }
    uuid[kUuidBytes - 1] = '\0';
    metrics->gpus.emplace_back(
        device, MetricLabels{{"gpu", std::to_string(i)}, {"gpu_uuid", uuid}});
  }
  if (metrics->gpus.empty()) return nullptr;
  metrics->Read();  // energy counts from here on
  return registry.OnScrape([metrics] { metrics->Read(); });
}

}  // namespace millrace::server
