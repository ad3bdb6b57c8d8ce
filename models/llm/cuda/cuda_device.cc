#include "models/llm/cuda/cuda_device.h"

#include <algorithm>
#include <utility>

#include "models/cpu/isa.h"
#include "models/llm/cuda/cuda_backend.h"
#include "models/llm/cuda/cuda_runner.h"

namespace millrace::models {

StatusOr<std::unique_ptr<Device>> CudaDevice::Open(
    const config::LlmSettings& settings, const std::string& isa,
    const config::CpuSet& cpus, int32_t ordinal) {
  std::unique_ptr<CudaDevice> device(new CudaDevice);
  ASSIGN_OR_RETURN(device->kernels_, ChooseKernels(isa));
  const std::string& kv = settings.kv_cache_dtype;
  if (kv != "f16" && kv != "f32" && kv != "auto") {
    return InvalidArgument("kv_cache_dtype is '" + kv +
                           "', but a GPU keeps f16 or f32; set "
                           "kv_cache_dtype to f16")
        .At("kv_cache_dtype");
  }
  device->kv_f32_ = kv == "f32";
  device->threads_ = std::max<int32_t>(1, static_cast<int32_t>(cpus.size()));
  ASSIGN_OR_RETURN(const cuda::Module* module, OpenCudaModule());
  ASSIGN_OR_RETURN(
      device->context_,
      CudaContext::Open(
          module, ordinal,
          {.setting = "kv_cache_memory_bytes",
           .remedy = "lower kv_cache_memory_bytes, or take a smaller model"}));
  return std::unique_ptr<Device>(std::move(device));
}

std::string CudaDevice::name() const {
  return "cuda:" + std::to_string(context_->device().ordinal);
}

std::string CudaDevice::kernels() const {
  const cuda::Device& device = context_->device();
  return "cuda sm_" + std::to_string(device.major * 10 + device.minor);
}

int64_t CudaDevice::memory_bytes() const {
  // The driver, and what fragments, keep some of it.
  return context_->device().free_bytes / 100 * 95;
}

int64_t CudaDevice::KvPageBytes(const BackendShape& shape) const {
  return CudaPageBytes(shape, kv_f32_);
}

std::unique_ptr<Backend> CudaDevice::NewBackend(const BackendShape& shape,
                                                const StepLimits& limits) {
  return std::make_unique<CudaBackend>(CudaBackendOptions{.shape = shape,
                                                          .limits = limits,
                                                          .context = context_,
                                                          .kv_f32 = kv_f32_,
                                                          .threads = threads_});
}

StatusOr<std::unique_ptr<Runner>> CudaDevice::NewRunner(
    const RunnerInfo& info, std::unique_ptr<Backend> backend) {
  std::unique_ptr<CudaBackend> own(
      static_cast<CudaBackend*>(backend.release()));
  RETURN_IF_ERROR(own->Bind(info.num_pages));
  return std::unique_ptr<Runner>(
      std::make_unique<CudaRunner>(info, std::move(own), *kernels_));
}

}  // namespace millrace::models
