// A LoRA adapter: for some matrices W of a model two thin ones, so that
//
//   y = W x + scale * B (A x)          A [rank][inputs], B [outputs][rank]
//
//   ASSIGN_OR_RETURN(auto adapter, LoadLora("folder or file.gguf", base));
//   SlotInit init = {.slot = 3, …, .adapter = adapter};
//
// Read from a folder of PEFT (adapter_config.json, adapter_model.safetensors)
// or a GGUF file. It may change the matrices of attention and of dense
// feed-forwards; one that changes anything else is refused. Kept packed as the
// device reads it (lora_packing.h), in that device's memory if it has its own.
// Immutable after LoadLora; shared by the sequences that use it.
// Source: Hu et al. 2021.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/base/status.h"
#include "models/cpu/llm_kernels.h"
#include "models/llm/config.h"
#include "models/llm/lora_layout.h"
#include "models/memory/huge_buffer.h"

namespace millrace::models {

inline constexpr int32_t kMaxLoraRank = 256;

class LoraOnDevice;  // lora_store.h

// The model that adapters are made for.
struct LoraBase {
  ModelConfig config;
  bool as_trained = true;  // see ModelSource
  LoraPacking packing = {};
};

// Matrices by their part in a layer; those that a file holds fused are cut.
enum class LoraTarget : uint8_t { kQ, kK, kV, kOutput, kGate, kUp, kDown };
inline constexpr size_t kNumLoraTargets = 7;
// Those that read one input, by the phase that multiplies them.
inline constexpr LoraTarget kQkvTargets[] = {LoraTarget::kQ, LoraTarget::kK,
                                             LoraTarget::kV};
inline constexpr LoraTarget kOutputTargets[] = {LoraTarget::kOutput};
inline constexpr LoraTarget kGateUpTargets[] = {LoraTarget::kGate,
                                                LoraTarget::kUp};
inline constexpr LoraTarget kDownTargets[] = {LoraTarget::kDown};

struct LoraMatrix {
  PackedMatrix matrix;
  const KernelTable* kernels = nullptr;  // the table that packed it
};

struct LoraDelta {
  int32_t rank = 0;  // 0: the matrix stays as it is
  LoraMatrix a;      // [rank][inputs]
  LoraMatrix b;      // [outputs][rank], times the adapter's scale
  float scale = 1;   // A x times this is what B takes
  // Of int8: outputs whose ranks share a row of `b`; see lora_packing.h.
  int32_t outputs_a_row = 1;
};

class LoraAdapter {
 public:
  using Layer = std::array<LoraDelta, kNumLoraTargets>;

  // `memory`: of all packed matrices.
  LoraAdapter(std::vector<Layer> layers, LoraDtype dtype, HugeBuffer memory,
              std::string name);
  // Of `layers` only the ranks are read.
  LoraAdapter(std::vector<Layer> layers, LoraDtype dtype,
              std::shared_ptr<const LoraOnDevice> on_device, std::string name);

  const LoraDelta& delta(int32_t layer, LoraTarget target) const {
    return layers_[static_cast<size_t>(layer)][static_cast<size_t>(target)];
  }
  // No other adapter of this process has or had it; above 0.
  uint32_t number() const { return number_; }
  // What it is served as.
  const std::string& name() const { return name_; }
  int32_t rank() const;  // the greatest
  LoraDtype dtype() const { return dtype_; }
  int64_t num_bytes() const;
  // The same weights with another effect, under a number of its own. Not for
  // one in a device's own memory.
  std::shared_ptr<const LoraAdapter> Scaled(float factor) const;
  // In a device's own memory; null: in the host's.
  const LoraOnDevice* on_device() const { return on_device_.get(); }

 private:
  LoraAdapter(const LoraAdapter& other, std::vector<Layer> layers);

  const std::vector<Layer> layers_;
  const LoraDtype dtype_;
  const std::shared_ptr<const HugeBuffer> memory_;  // of all scales; or null
  const std::shared_ptr<const LoraOnDevice> on_device_;
  const uint32_t number_;
  const std::string name_;
};

// INVALID_ARGUMENT for what does not fit the base or contradicts itself,
// UNIMPLEMENTED for what cannot be served, NOT_FOUND; all name path and tensor.
StatusOr<std::shared_ptr<const LoraAdapter>> LoadLora(const std::string& path,
                                                      const LoraBase& base,
                                                      std::string name = "");

}  // namespace millrace::models
