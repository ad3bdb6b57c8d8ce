#include "models/llm/cuda/cuda_device.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "config/base/log.h"
#include "models/cpu/isa.h"
#include "models/llm/cuda/cuda_lora.h"
#include "models/llm/cuda/cuda_runner.h"
#include "models/llm/cuda/pack_rows.h"
#include "models/llm/lora.h"

namespace millrace::models {
namespace {

StatusOr<CudaCompute> ComputeOf(const std::string& name) {
  if (name == "auto") return CudaCompute::kAuto;
  // int16 is int8 with rounding twice in most places, which the weights say.
  if (name == "int8" || name == "int16") return CudaCompute::kInt8;
  if (name == "f32") return CudaCompute::kF32;
  return InvalidArgument("compute_dtype is '" + name +
                         "'; auto, int8, int16 and f32 exist")
      .At("compute_dtype");
}

// The share of the device that the setting names, of what is free: others, the
// driver and what fragments keep some of it.
StatusOr<int64_t> MemoryOf(const cuda::Device& device,
                           const std::string& share) {
  double value = 0;
  const char* end = share.data() + share.size();
  const auto [stop, error] = std::from_chars(share.data(), end, value);
  if (error != std::errc() || stop != end || !(value > 0) || value > 1) {
    return InvalidArgument("gpu_memory_utilization is '" + share +
                           "' but must be above 0 and at most 1")
        .At("gpu_memory_utilization");
  }
  const double wanted = value * static_cast<double>(device.total_bytes);
  const double possible = 0.98 * static_cast<double>(device.free_bytes);
  return static_cast<int64_t>(std::min(wanted, possible));
}

// What the setting asks for. Where cuBLASLt cannot be used a line in the log
// says why, and kernels multiply: null.
StatusOr<std::shared_ptr<BlasProducts>> BlasOf(
    const std::string& gemm_backend, std::shared_ptr<CudaContext> context) {
  if (gemm_backend == "native") return std::shared_ptr<BlasProducts>();
  if (gemm_backend != "cublaslt") {
    return InvalidArgument("gemm_backend is '" + gemm_backend +
                           "'; native and cublaslt exist")
        .At("gemm_backend");
  }
  StatusOr<std::unique_ptr<BlasProducts>> opened =
      BlasProducts::Open(std::move(context));
  if (opened.ok()) return std::shared_ptr(std::move(opened).value());
  LogWarning("native kernels multiply prompts, not cuBLASLt",
             {{"why", opened.status().message()}});
  return std::shared_ptr<BlasProducts>();
}

}  // namespace

StatusOr<std::unique_ptr<Device>> CudaDevice::Open(
    const config::LlmSettings& settings, const std::string& isa,
    const config::CpuSet& cpus, int32_t ordinal) {
  std::unique_ptr<CudaDevice> device(new CudaDevice);
  ASSIGN_OR_RETURN(device->kernels_, ChooseKernels(isa));
  const std::string& kv = settings.kv_cache_dtype;
  if (kv != "f16" && kv != "int8" && kv != "f32" && kv != "auto") {
    return InvalidArgument("kv_cache_dtype is '" + kv +
                           "', but a GPU keeps f16, int8 or f32; set "
                           "kv_cache_dtype to f16")
        .At("kv_cache_dtype");
  }
  if (kv == "f32") device->kv_format_ = cuda::KvFormat::kF32;
  if (kv == "int8") device->kv_format_ = cuda::KvFormat::kInt8;
  device->graphs_ = !settings.enforce_eager;
  device->ahead_ = settings.async_scheduling;
  device->timeout_ms_ = settings.tensor_parallel_timeout_ms;
  ASSIGN_OR_RETURN(device->compute_, ComputeOf(settings.compute_dtype));
  if (device->compute_ == CudaCompute::kF32) {
    device->lora_dtype_ = LoraDtype::kF32;
  }
  ASSIGN_OR_RETURN(const LoraDtype lora,
                   LoraDtypeOf(settings.lora_dtype, device->lora_dtype_));
  if (lora != device->lora_dtype_) {
    return InvalidArgument("lora_dtype is '" + settings.lora_dtype +
                           "', but a GPU keeps adapters in f16, or in f32 "
                           "with compute_dtype f32; leave lora_dtype out")
        .At("lora_dtype");
  }
  device->threads_ = std::max<int32_t>(1, static_cast<int32_t>(cpus.size()));
  ASSIGN_OR_RETURN(const cuda::Module* module, OpenCudaModule());
  ASSIGN_OR_RETURN(
      device->context_,
      CudaContext::Open(
          module, ordinal,
          {.setting = "gpu_memory_utilization",
           .remedy = "lower gpu_memory_utilization, or take a smaller model"}));
  ASSIGN_OR_RETURN(device->blas_,
                   BlasOf(settings.gemm_backend, device->context_));
  device->lora_store_ = std::make_shared<CudaLoraStore>(
      module, ordinal, device->compute_ == CudaCompute::kF32);
  ASSIGN_OR_RETURN(
      device->memory_bytes_,
      MemoryOf(device->context_->device(), settings.gpu_memory_utilization));
  return std::unique_ptr<Device>(std::move(device));
}

std::string CudaDevice::name() const {
  return "cuda:" + std::to_string(context_->device().ordinal);
}

std::string CudaDevice::kernels() const {
  const cuda::Device& device = context_->device();
  return "cuda sm_" + std::to_string(device.major * 10 + device.minor) +
         (blas_ == nullptr ? "" : ", cuBLASLt " + blas_->VersionText());
}

Status CudaDevice::Join(std::shared_ptr<Group> group) {
  ASSIGN_OR_RETURN(nccl_, NcclLibrary::Open());
  ASSIGN_OR_RETURN(first_sums_, NcclGroup::Reserve(*context_));
  group_ = std::move(group);
  return OkStatus();
}

StatusOr<GroupKey> CudaDevice::NewGroupKey() {
  GroupKey key{};
  if (group_->rank() > 0) return key;
  NcclKey made;
  static_assert(sizeof made == sizeof key);
  const int error = nccl_->get_unique_id(&made);
  if (error != kNcclSuccess) {
    return FailedPrecondition("NCCL cannot start a group: " +
                              nccl_->TextOf(error, nullptr))
        .At("tensor_parallel_size");
  }
  std::memcpy(key.data(), &made, sizeof made);
  return key;
}

Status CudaDevice::Connect(const GroupKey& key) {
  NcclGroupOptions options = {
      .library = nccl_,
      .context = context_,
      .key = {},
      .rank = group_->rank(),
      .size = group_->size(),
      .timeout = std::chrono::milliseconds(timeout_ms_)};
  std::memcpy(&options.key, key.data(), sizeof options.key);
  StatusOr<std::shared_ptr<NcclGroup>> gpus =
      NcclGroup::Connect(options, std::move(first_sums_));
  if (!gpus.ok()) return Unavailable(std::string(gpus.status().message()));
  gpus_ = std::move(gpus).value();
  return OkStatus();
}

std::string CudaDevice::group_facts() const {
  const cuda::Device& device = context_->device();
  return ", '" + std::string(device.name) + "' with " +
         std::to_string(device.multiprocessors) + " multiprocessors, NCCL " +
         nccl_->VersionText() + (graphs_ ? "" : ", enforce_eager");
}

int64_t CudaDevice::WeightBytes(GgmlType type, int64_t rows, int64_t k) const {
  return rows * CudaRowBytes(CudaFormatOf(type), k);
}

int64_t CudaDevice::StepBytes(const BackendShape& shape,
                              const StepLimits& limits) const {
  return CudaStepBytes(shape, limits) +
         (blas_ == nullptr ? 0 : CudaBlasBytes(shape, limits));
}

int64_t CudaDevice::KvPageBytes(const BackendShape& shape) const {
  return CudaPageBytes(shape, kv_format_);
}

std::unique_ptr<Backend> CudaDevice::NewBackend(const BackendShape& shape,
                                                const StepLimits& limits) {
  return std::make_unique<CudaBackend>(
      CudaBackendOptions{.shape = shape,
                         .limits = limits,
                         .context = context_,
                         .gpus = gpus_,
                         .blas = blas_,
                         .kv_format = kv_format_,
                         .compute = compute_,
                         .graphs = graphs_,
                         .ahead = ahead_,
                         .threads = threads_});
}

StatusOr<std::unique_ptr<Runner>> CudaDevice::NewRunner(
    const RunnerInfo& info, std::unique_ptr<Backend> backend) {
  std::unique_ptr<CudaBackend> own(
      static_cast<CudaBackend*>(backend.release()));
  RETURN_IF_ERROR(own->Bind(info.num_pages));
  RunnerInfo made = info;
  made.kv_depends_on_role = own->HasRoles();
  return std::unique_ptr<Runner>(
      std::make_unique<CudaRunner>(made, std::move(own), *kernels_));
}

}  // namespace millrace::models
