// The cores of this machine as a device: one team of workers, one kernel table.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "models/cpu/compute_pool.h"
#include "models/cpu/llm_kernels.h"
#include "models/llm/device.h"

namespace millrace::models {

class CpuDevice final : public Device {
 public:
  // One worker for each of `cpus`; none: one worker, which is not pinned.
  // Heeds isa, kv_cache_dtype, compute_dtype, lora_dtype and huge_pages.
  static StatusOr<std::unique_ptr<Device>> Open(
      const config::LlmSettings& settings, const std::string& isa,
      const config::CpuSet& cpus);

  std::string name() const override { return "cpu"; }
  std::optional<LoraPacking> adapter_packing() const override {
    return LoraPacking{
        .kernels = kernels_, .dtype = lora_dtype_, .huge_pages = huge_pages_};
  }
  std::string kernels() const override { return kernels_->name; }
  int32_t threads() const override;
  Status Join(std::shared_ptr<Group> group) override;
  bool has_page_groups() const override { return true; }
  int64_t KvPageBytes(const BackendShape& shape) const override;
  std::unique_ptr<Backend> NewBackend(const BackendShape& shape,
                                      const StepLimits& limits) override;
  StatusOr<std::unique_ptr<Runner>> NewRunner(
      const RunnerInfo& info, std::unique_ptr<Backend> backend) override;

 private:
  CpuDevice() = default;

  const KernelTable* kernels_ = nullptr;
  config::CpuSet cpus_;
  KvFormat kv_format_ = KvFormat::kF16;
  bool compute_f32_ = false;
  LoraDtype lora_dtype_ = LoraDtype::kF16;
  bool prompts_in_bf16_ = false;
  bool huge_pages_ = true;
  // Made for the first backend. Shared: every backend's runner keeps it alive.
  std::shared_ptr<ComputePool> team_;
  std::shared_ptr<Group> group_;  // of the backends' ranks; null: none
};

}  // namespace millrace::models
