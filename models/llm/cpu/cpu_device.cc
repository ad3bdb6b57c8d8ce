#include "models/llm/cpu/cpu_device.h"

#include <algorithm>
#include <utility>

#include "models/cpu/isa.h"
#include "models/llm/cpu/cpu_backend.h"
#include "models/llm/cpu/cpu_runner.h"
#include "models/llm/kv_pool.h"
#include "models/llm/lora.h"

namespace millrace::models {
namespace {

StatusOr<KvFormat> KvFormatOf(const std::string& name) {
  if (name == "f16" || name == "auto") return KvFormat::kF16;
  if (name == "f32") return KvFormat::kF32;
  if (name == "int8" || name == "q8_0") return KvFormat::kInt8;
  return InvalidArgument("kv_cache_dtype is '" + name +
                         "'; f16, int8 and f32 exist")
      .At("kv_cache_dtype");
}

}  // namespace

StatusOr<std::unique_ptr<Device>> CpuDevice::Open(
    const config::LlmSettings& settings, const std::string& isa,
    const config::CpuSet& cpus) {
  const std::string& compute = settings.compute_dtype;
  if (compute != "auto" && compute != "int8" && compute != "int16" &&
      compute != "f32") {
    return InvalidArgument("compute_dtype is '" + compute +
                           "'; auto, int8, int16 and f32 exist")
        .At("compute_dtype");
  }
  std::unique_ptr<CpuDevice> device(new CpuDevice);
  ASSIGN_OR_RETURN(device->kernels_, ChooseKernels(isa));
  ASSIGN_OR_RETURN(device->kv_format_, KvFormatOf(settings.kv_cache_dtype));
  device->cpus_ = cpus;
  device->compute_f32_ = compute == "f32";
  ASSIGN_OR_RETURN(
      device->lora_dtype_,
      LoraDtypeOf(settings.lora_dtype,
                  device->compute_f32_ ? LoraDtype::kF32 : LoraDtype::kF16));
  device->prompts_in_bf16_ = compute == "auto";
  device->huge_pages_ = settings.huge_pages;
  return std::unique_ptr<Device>(std::move(device));
}

int32_t CpuDevice::threads() const {
  return std::max<int32_t>(1, static_cast<int32_t>(cpus_.size()));
}

Status CpuDevice::Join(std::shared_ptr<Group> group) {
  group_ = std::move(group);
  return OkStatus();
}

int64_t CpuDevice::KvPageBytes(const BackendShape& shape) const {
  return KvLayout{.format = kv_format_,
                  .layers = shape.kv_layers(),
                  .kv_heads = shape.kv_heads,
                  .head_dim = shape.head_dim}
      .page_bytes();
}

std::unique_ptr<Backend> CpuDevice::NewBackend(const BackendShape& shape,
                                               const StepLimits& limits) {
  if (team_ == nullptr) team_ = std::make_shared<ComputePool>(cpus_, "llm");
  return std::make_unique<CpuBackend>(
      CpuBackendOptions{.shape = shape,
                        .limits = limits,
                        .kernels = kernels_,
                        .team = team_,
                        .group = group_,
                        .kv_format = kv_format_,
                        .compute_f32 = compute_f32_,
                        .prompts_in_bf16 = prompts_in_bf16_,
                        .huge_pages = huge_pages_});
}

StatusOr<std::unique_ptr<Runner>> CpuDevice::NewRunner(
    const RunnerInfo& info, std::unique_ptr<Backend> backend) {
  std::unique_ptr<CpuBackend> own(static_cast<CpuBackend*>(backend.release()));
  RunnerInfo made = info;
  made.kv_depends_on_role = own->ChoosePromptWay();
  ASSIGN_OR_RETURN(
      KvPool pool,
      KvPool::Create(info.num_pages, own->KvPageBytes(), huge_pages_));
  return std::unique_ptr<Runner>(std::make_unique<CpuRunner>(
      made, std::move(own), std::move(pool), *kernels_, threads()));
}

}  // namespace millrace::models
