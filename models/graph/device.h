// A device other than the cores of this machine that graphs run on. What stands
// above a context does not see it: the device is named once, when a graph is
// compiled, and plans of that graph are then the device's.
//
//   ASSIGN_OR_RETURN(auto device, OpenGraphDevice("cuda:0"));
//   CompiledGraph::Create(std::move(graph), {.device = device});
//
// One device object belongs to one compiled graph: weights are uploaded for it
// once, and all its plans share them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "models/cpu/compute_pool.h"
#include "models/graph/ir.h"
#include "models/graph/stop_check.h"
#include "models/graph/trace.h"

namespace millrace::models::graph {

struct Kernels;
class WeightPacker;

// What a device rounds the factors of products and convolutions to, and of f16
// and bf16 also values between operators where it can; all arithmetic is f32.
enum class DevicePrecision { kF32, kTf32, kF16, kBf16 };
// Of the setting `precision`: "f32", "tf32", "f16" or "bf16"; "auto" is tf32.
// None for other words, which a device has not.
std::optional<DevicePrecision> DevicePrecisionOf(std::string_view setting);
std::string_view DevicePrecisionName(DevicePrecision precision);

// What multiplies matrices of weights on a device: its own kernels, or NVIDIA's
// library where it gives a row the same bits in any batch.
enum class GemmBackend { kNative, kCublasLt };
// Of the setting `gemm_backend`. INVALID_ARGUMENT: no such name.
StatusOr<GemmBackend> GemmBackendOf(std::string_view setting);
// What convolves on a device: its own kernels, or NVIDIA's library where it
// gives an image the same bits in any batch.
enum class ConvBackend { kNative, kCudnn };
// Of the setting `conv_backend`. INVALID_ARGUMENT: no such name.
StatusOr<ConvBackend> ConvBackendOf(std::string_view setting);

// What a device computes with beside its own kernels, which serve where these
// cannot.
struct DeviceLibraries {
  GemmBackend gemm = GemmBackend::kNative;
  ConvBackend conv = ConvBackend::kNative;
};

// What one context has on the device: a stream, memory for values. Used by one
// thread at a time.
class DeviceState {
 public:
  virtual ~DeviceState() = default;
};

// How many operators run where, and what is copied between them in a run.
struct DeviceCounts {
  int64_t on_device = 0;
  int64_t on_cpu = 0;
  int64_t copies = 0;
  int64_t copied_bytes = 0;
  int64_t made_bytes = 0;    // of results on the device
  int64_t narrow_bytes = 0;  // of them, those that are kept in 16 bits
  int64_t by_cublaslt = 0;   // operators on the device that it computes
  int64_t by_cudnn = 0;
};

// A plan for one set of input sizes, on the device and, for operators that the
// device has no kernel for, on the cores. Immutable.
class DevicePlan {
 public:
  virtual ~DevicePlan() = default;

  // As Plan::Run; `arena` has arena_bytes of the host.
  virtual StatusOr<std::vector<Tensor>> Run(
      const std::vector<Tensor>& inputs, std::byte* arena, DeviceState& state,
      ComputePool& pool, const StopCheck& stopped, Trace* trace) const = 0;
  virtual int64_t arena_bytes() const = 0;
  // What values take of the device's memory while it runs.
  virtual int64_t device_bytes() const = 0;
  virtual std::vector<ValueType> OutputTypes() const = 0;
  virtual int64_t held_bytes() const = 0;
  virtual DeviceCounts counts() const = 0;
  // One line for each step and copy, with its place in front.
  virtual std::string Text() const = 0;
};

// Thread-safe.
class GraphDevice {
 public:
  virtual ~GraphDevice() = default;

  virtual std::string name() const = 0;  // "cuda:0"
  virtual DevicePrecision precision() const = 0;
  // Those that were asked for and opened.
  virtual DeviceLibraries libraries() const = 0;
  // RESOURCE_EXHAUSTED: so many bytes of weights were more than was free when
  // the device was opened.
  virtual Status CheckFits(int64_t weight_bytes) const = 0;
  virtual StatusOr<std::unique_ptr<DeviceState>> NewState() = 0;
  // `graph` is typed and optimised; `is_shared` tells the constants that all
  // plans have in common. What `packed` packs for the cores, and this device,
  // outlive the plan. RESOURCE_EXHAUSTED: no memory for weights.
  virtual StatusOr<std::unique_ptr<const DevicePlan>> NewPlan(
      const Graph& graph, int num_members, const Kernels& kernels,
      WeightPacker& packed,
      const std::function<bool(const Tensor*)>& is_shared) = 0;
};

// The device that a setting names: null for "cpu", a GPU for "cuda:0"; for
// "auto" GPU 0, or null with a line in the log that says why it cannot serve.
// Where cuBLASLt or cuDNN cannot be used, a line in the log says why, and
// kernels do its work. INVALID_ARGUMENT: no such name. FAILED_PRECONDITION: why
// the GPU cannot serve.
StatusOr<std::shared_ptr<GraphDevice>> OpenGraphDevice(
    const std::string& name, DevicePrecision precision = DevicePrecision::kF32,
    DeviceLibraries libraries = {});

// Several, "cuda:0,cuda:1", or all GPUs, "cuda:all"; or one as above. Empty:
// the CPU. INVALID_ARGUMENT: the CPU beside a GPU, or a GPU twice.
StatusOr<std::vector<std::shared_ptr<GraphDevice>>> OpenGraphDevices(
    std::string_view names, DevicePrecision precision = DevicePrecision::kF32,
    DeviceLibraries libraries = {});

}  // namespace millrace::models::graph
