// A plan on a GPU: steps on the device, steps on the cores for what it has no
// kernel for, and the copies between them, in one order that is decided when
// the plan is made.
//
//   copy  x to the device        input
//   gpu   Conv x -> a
//   copy  a to the host          a step on the cores reads it
//   cpu   NonMaxSuppression a -> b
//   copy  b to the device
//   gpu   Linear b -> y
//   copy  y to the host          result
//
// Where no step on the cores reads what the device made, they run first, and
// the device's work is captured when the plan runs the second time (CUDA
// graphs): one launch from then on. What is copied goes through pinned memory
// of the context. The bits are the same.
//
// Each value is copied once each way at most, since it is written once. Values
// share memory, on each side, when no step needs both. Immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/gpu/cuda_context.h"
#include "models/graph/cuda/cuda_state.h"
#include "models/graph/cuda/device_step.h"
#include "models/graph/cuda/device_weights.h"
#include "models/graph/device.h"
#include "models/graph/plan/kernels.h"
#include "models/graph/plan/packed_weights.h"
#include "models/graph/plan/step.h"

namespace millrace::models::graph {

class CudaPlan final : public DevicePlan {
 public:
  struct Parts {
    const Graph& graph;  // typed and optimised
    std::string device;  // its name
    cuda::GraphPrecision precision;
    int num_members;
    const Kernels& kernels;
    WeightPacker& packed;
    DeviceWeights& weights;
    BlasLayers* blas;  // null: kernels multiply
    ConvLayers* conv;  // null: kernels convolve
    const std::function<bool(const Tensor*)>& is_shared;
  };
  static StatusOr<std::unique_ptr<const DevicePlan>> Create(const Parts& parts);

  StatusOr<std::vector<Tensor>> Run(const std::vector<Tensor>& inputs,
                                    std::byte* arena, DeviceState& state,
                                    ComputePool& pool, const StopCheck& stopped,
                                    Trace* trace) const override;
  int64_t arena_bytes() const override { return host_bytes_; }
  int64_t device_bytes() const override { return device_bytes_; }
  std::vector<ValueType> OutputTypes() const override;
  int64_t held_bytes() const override { return held_bytes_; }
  DeviceCounts counts() const override;
  std::string Text() const override;

 private:
  friend class CudaPlanBuilder;
  enum class Kind { kToDevice, kToHost, kOnDevice, kOnCpu };
  struct Action {
    Kind kind;
    size_t step = 0;        // of its kind
    Slot slot = kNoSlot;    // of a copy
    int64_t bytes = 0;      // likewise
    int64_t scratch = 0;    // of a step: its place in the arena of that side
    int64_t staged = 0;     // of an input's copy: its place in staging memory
    size_t check = 0;       // of a step that checks indices: its number
    std::string name = {};  // of the graph's node
    std::vector<int32_t> sources = {};  // actions whose results it reads
  };
  struct Output {
    Slot slot;
    ValueType type;
    bool from_device;
    int64_t staged = 0;  // its place in staging memory, then
  };
  // A step whose indices were looked at.
  struct Check {
    std::string node;
    int64_t size;
  };

  CudaPlan();
  void Bind(const std::vector<Tensor>& inputs, std::byte* arena,
            std::byte* device_arena, CudaState& state) const;
  Status RunActions(std::byte* arena, std::byte* device_arena, CudaState& state,
                    ComputePool& pool, const StopCheck& stopped,
                    Trace* trace) const;
  // All steps on the cores first, then all work of the device.
  StatusOr<std::vector<Tensor>> RunStaged(std::byte* arena,
                                          const std::byte* device_arena,
                                          CudaState& state, ComputePool& pool,
                                          const StopCheck& stopped) const;
  Status Ask(const std::byte* device_arena, std::byte* staging,
             CudaState& state) const;
  Status Launch(const Action& action, const std::byte* device_arena,
                CudaState& state) const;
  Status CheckFound(const int64_t* found) const;
  Status RunOnCpu(const Action& action, std::byte* arena, CudaState& state,
                  ComputePool& pool) const;
  StatusOr<std::vector<Tensor>> TakeOutputs(std::byte* device_arena,
                                            CudaState& state) const;
  std::string ActionText(const Action& action) const;
  void BeginTrace(const ComputePool& pool, Trace& trace) const;

  const int64_t number_;  // no other plan of this process has it
  std::string device_;
  int num_members_ = 1;
  std::vector<Action> actions_;
  std::vector<DeviceStep> device_steps_;
  std::vector<const std::byte*> packed_;  // of each of them; null: none
  std::vector<const std::byte*> own_;     // likewise
  std::vector<std::unique_ptr<Step>> cpu_steps_;
  std::vector<Slot> inputs_;
  std::vector<Output> outputs_;
  std::vector<Check> checks_;
  int64_t found_offset_ = 0;  // of what checks find, in the device's arena
  // Of each storage: its constant, or its place in the arena of that side.
  std::vector<const std::byte*> host_constant_;
  std::vector<const std::byte*> device_constant_;
  std::vector<int64_t> host_offset_;        // -1: not in the arena
  std::vector<int64_t> device_offset_;      // likewise
  std::vector<cuda::GraphFormat> formats_;  // on the device
  std::vector<std::shared_ptr<const Tensor>> constants_;  // kept alive
  CudaBuffer own_constants_;
  std::vector<CudaBuffer> own_packed_;
  CudaBuffer step_constants_;
  bool calls_library_ = false;  // which takes the device from the thread
  bool is_staged_ = true;  // no step on the cores reads what the device made
  int64_t host_bytes_ = 0;
  int64_t staged_found_ = 0;  // place in staging memory
  int64_t staging_bytes_ = 0;
  int64_t device_bytes_ = 0;
  int64_t held_bytes_ = 0;
  int64_t made_bytes_ = 0;    // of results on the device
  int64_t narrow_bytes_ = 0;  // of them, those in 16 bits
  std::string narrow_name_;   // "f16" or "bf16"
};

}  // namespace millrace::models::graph
