// A GPU as a device for language models.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "models/cpu/llm_kernels.h"
#include "models/gpu/blas_products.h"
#include "models/gpu/cuda_context.h"
#include "models/llm/cuda/cuda_backend.h"
#include "models/llm/cuda/nccl_group.h"
#include "models/llm/cuda/nccl_library.h"
#include "models/llm/device.h"
#include "models/llm/lora_store.h"

namespace millrace::models {

class CudaDevice final : public Device {
 public:
  // GPU number `ordinal`. Heeds kv_cache_dtype, compute_dtype, gemm_backend,
  // enforce_eager, gpu_memory_utilization, tensor_parallel_timeout and the
  // number of `cpus`, which pack weights.
  // FAILED_PRECONDITION says in one sentence why the GPU cannot serve.
  static StatusOr<std::unique_ptr<Device>> Open(
      const config::LlmSettings& settings, const std::string& isa,
      const config::CpuSet& cpus, int32_t ordinal);

  std::string name() const override;
  std::string kernels() const override;
  int32_t threads() const override { return threads_; }
  std::optional<LoraPacking> adapter_packing() const override {
    return LoraPacking{.dtype = lora_dtype_, .store = lora_store_};
  }
  // FAILED_PRECONDITION says in one sentence why NCCL cannot be used,
  // RESOURCE_EXHAUSTED that the GPU has no memory to connect it.
  Status Join(std::shared_ptr<Group> group) override;
  StatusOr<GroupKey> NewGroupKey() override;
  // UNAVAILABLE, whatever failed: the other ranks wait for this one in NCCL.
  Status Connect(const GroupKey& key) override;
  std::string group_facts() const override;
  int64_t memory_bytes() const override { return memory_bytes_; }
  int64_t WeightBytes(GgmlType type, int64_t rows, int64_t k) const override;
  int64_t StepBytes(const BackendShape& shape,
                    const StepLimits& limits) const override;
  int64_t KvPageBytes(const BackendShape& shape) const override;
  std::unique_ptr<Backend> NewBackend(const BackendShape& shape,
                                      const StepLimits& limits) override;
  StatusOr<std::unique_ptr<Runner>> NewRunner(
      const RunnerInfo& info, std::unique_ptr<Backend> backend) override;

 private:
  CudaDevice() = default;

  std::shared_ptr<CudaContext> context_;
  std::shared_ptr<BlasProducts> blas_;  // null: kernels multiply
  std::shared_ptr<LoraStore> lora_store_;
  LoraDtype lora_dtype_ = LoraDtype::kF16;  // as the store keeps them
  const KernelTable* kernels_ = nullptr;    // for drawing
  cuda::KvFormat kv_format_ = cuda::KvFormat::kF16;
  int64_t memory_bytes_ = 0;
  bool graphs_ = true;
  bool ahead_ = true;
  CudaCompute compute_ = CudaCompute::kAuto;
  int32_t threads_ = 1;
  int64_t timeout_ms_ = 0;                   // within a step of a group
  std::shared_ptr<const NcclLibrary> nccl_;  // these four: of a group
  std::shared_ptr<Group> group_;
  std::shared_ptr<NcclGroup> gpus_;
  CudaBuffer first_sums_;  // between Join and Connect
};

}  // namespace millrace::models
