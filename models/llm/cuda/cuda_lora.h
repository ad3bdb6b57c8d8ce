// LoRA adapters in the memory of a GPU, in the layout that its kernels read
// (models/cuda/lora_kernels.h): one piece of memory each, with a table of
// factors in front.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "config/base/mutex.h"
#include "config/base/status.h"
#include "models/cuda/lora_kernels.h"
#include "models/gpu/cuda_context.h"
#include "models/llm/lora_store.h"

namespace millrace::models {

// Adapters are loaded while steps run, so it has a stream of its own, which is
// opened with the first one. Their memory is what the device has left, but for
// a part that is kept for what else is allocated while it serves (CUDA graphs,
// libraries, the driver). Thread-safe.
class CudaLoraStore final : public LoraStore,
                            public std::enable_shared_from_this<CudaLoraStore> {
 public:
  // `f32`: values are kept so, else in f16.
  CudaLoraStore(const cuda::Module* module, int32_t ordinal, bool f32)
      : module_(module), ordinal_(ordinal), f32_(f32) {}

  StatusOr<std::shared_ptr<const LoraOnDevice>> Put(
      const LoraFloatLayers& layers, const std::string& name) override;
  void Release(CudaBuffer memory, int64_t num_bytes);

 private:
  Status CheckFits(int64_t num_bytes, const std::string& name) const
      REQUIRES(mu_);

  const cuda::Module* const module_;
  const int32_t ordinal_;
  const bool f32_;
  Mutex mu_;
  std::shared_ptr<CudaContext> context_ GUARDED_BY(mu_);
  int64_t held_bytes_ GUARDED_BY(mu_) = 0;  // by all adapters
};

class CudaLora final : public LoraOnDevice {
 public:
  CudaLora(std::shared_ptr<CudaLoraStore> store, CudaBuffer memory,
           int64_t num_bytes, int32_t rank)
      : store_(std::move(store)),
        memory_(std::move(memory)),
        num_bytes_(num_bytes),
        rank_(rank) {}
  ~CudaLora() override { store_->Release(std::move(memory_), num_bytes_); }

  // Of matrix `target` of layer `layer`: [layer * kNumLoraTargets + target], on
  // the device.
  const cuda::LoraFactors* factors() const {
    return memory_.as<const cuda::LoraFactors>();
  }
  int64_t num_bytes() const override { return num_bytes_; }
  int32_t rank() const { return rank_; }  // the greatest

 private:
  const std::shared_ptr<CudaLoraStore> store_;  // the device may go before
  CudaBuffer memory_;
  const int64_t num_bytes_;
  const int32_t rank_;
};

}  // namespace millrace::models
