// From nodes of a typed, optimised graph to launches of kernels on a GPU. A
// node without a kernel has none here and runs on the cores.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/cuda/module_api.h"
#include "models/graph/cuda/blas_layers.h"
#include "models/graph/cuda/byte_sums.h"
#include "models/graph/cuda/conv_layers.h"
#include "models/graph/ir.h"
#include "models/graph/plan/step.h"

namespace millrace::models::graph {

// Where the storages of a plan are on the device during one run.
struct DeviceSlots {
  std::byte* const* at;
  const cuda::GraphFormat* formats;  // likewise
  int64_t* found;           // of a step that checks indices: two integers
  const std::byte* packed;  // of a step that asks for packed weights
  const std::byte* own;     // what a step has of its own
  std::byte* scratch;       // of a step that asks for it, while it runs

  const uint8_t* bytes_in(Slot slot) const {
    return slot == kNoSlot ? nullptr
                           : reinterpret_cast<const uint8_t*>(at[slot]);
  }
  uint8_t* bytes_out(Slot slot) const {
    return reinterpret_cast<uint8_t*>(at[slot]);
  }
  // What kernels take in any format.
  cuda::ValuesIn in(Slot slot) const {
    return slot == kNoSlot ? cuda::ValuesIn()
                           : cuda::ValuesIn(at[slot], formats[slot]);
  }
  cuda::ValuesOut out(Slot slot) const { return {at[slot], formats[slot]}; }
  // What they take in f32 alone.
  const float* floats_in(Slot slot) const {
    return slot == kNoSlot ? nullptr : floats_out(slot);
  }
  float* floats_out(Slot slot) const {
    CHECK(formats[slot] == cuda::GraphFormat::kF32, "the plan kept it in f32");
    return reinterpret_cast<float*>(at[slot]);
  }
};

// A constant in a form that kernels read. Those of the same tensor and form are
// made and uploaded once for all plans, if the constant is one that they share.
struct PackedConstant {
  ValueId value = kNoValue;
  std::shared_ptr<const Tensor> of;
  std::vector<int64_t> form;  // whatever decides beside the tensor
  std::function<std::vector<std::byte>()> pack;
};

enum class Library { kNone, kCublasLt, kCudnn };

struct DeviceStep {
  // Launches; 0 or the number of an error of the device.
  std::function<int(const cuda::Module&, cuda::Stream, const DeviceSlots&)>
      launch;
  std::string text;
  double macs = 0;
  int64_t scratch_bytes = 0;  // that it overwrites
  // Of a step that calls a library of NVIDIA's: which, and what the number of
  // its error means, which `launch` returns times -1. Others call only kernels.
  Library library = Library::kNone;
  std::function<Status(int error)> failed;
  int64_t reads_behind = 0;  // bytes behind an operand, whatever they are
  // Indices are looked at while it runs: what is out of range is told when the
  // run ends. The size that they are in range of.
  bool checks_indices = false;
  int64_t index_size = 0;
  // A constant that it reads as packed weights instead of as it is.
  std::optional<PackedConstant> packed;
  // Operands that it does not read: their values are in what it has.
  std::vector<ValueId> known;
  // Values that the plan uploads for this step alone.
  std::vector<std::byte> own;
  // Set by the plan: storages that are read on the device, and written.
  std::vector<Slot> reads;
  std::vector<Slot> writes;
};

// What the makers of steps need to know of a graph.
struct DeviceLowering {
  const Graph& graph;
  const std::vector<Slot>& slot_of;  // of each value
  // Of each storage; empty while they are chosen.
  const std::vector<cuda::GraphFormat>& formats;
  cuda::GraphPrecision precision;  // of products and convolutions
  ByteWeightSums& byte_sums;
  BlasLayers* blas;  // null: kernels multiply
  ConvLayers* conv;  // null: kernels convolve

  const ValueType& type(ValueId id) const { return *graph.value(id).type; }
  const Shape& shape(ValueId id) const { return type(id).shape; }
  const Tensor* constant(ValueId id) const {
    return graph.value(id).constant.get();
  }
  Slot slot(ValueId id) const {
    return id == kNoValue ? kNoSlot : slot_of[static_cast<size_t>(id)];
  }
  bool IsFloat(ValueId id) const { return type(id).dtype == DType::kF32; }
  bool IsByte(ValueId id) const { return type(id).dtype == DType::kU8; }
};

// Which floats of a node may lie in 16 bits on the device; all others are f32.
struct NarrowUse {
  uint32_t reads = 0;  // bit i: operand i; the last bit: all from there on
  bool writes = false;

  bool Reads(size_t operand) const {
    return (reads >> std::min<size_t>(operand, 31) & 1) != 0;
  }
};
NarrowUse NarrowUseOf(const Node& node);

// None: the cores run it.
using MaybeStep = std::optional<DeviceStep>;
MaybeStep LowerToDevice(const Node& node, const DeviceLowering& lowering);

// One storage into another of the same values in its own format.
DeviceStep MakeDeviceConversion(Slot from, Slot to, int64_t count);

// ---- makers ----
MaybeStep MakeDeviceLinear(const Node& node, const DeviceLowering& lowering);
MaybeStep MakeDeviceMatMul(const Node& node, const DeviceLowering& lowering);
MaybeStep MakeDeviceConv(const Node& node, const DeviceLowering& lowering);
MaybeStep MakeDevicePool(const Node& node, const DeviceLowering& lowering);
MaybeStep MakeDeviceGroupNorm(const Node& node, const DeviceLowering& lowering);
MaybeStep MakeDeviceAttention(const Node& node, const DeviceLowering& lowering);
MaybeStep MakeDevicePointwise(const Node& node, const DeviceLowering& lowering);
MaybeStep MakeDeviceSoftmax(const Node& node, const DeviceLowering& lowering);
MaybeStep MakeDeviceNorm(const Node& node, const DeviceLowering& lowering);
MaybeStep MakeDeviceReduce(const Node& node, const DeviceLowering& lowering);
MaybeStep MakeDeviceGather(const Node& node, const DeviceLowering& lowering);
MaybeStep MakeDeviceTranspose(const Node& node, const DeviceLowering& lowering);
MaybeStep MakeDeviceSlice(const Node& node, const DeviceLowering& lowering);
MaybeStep MakeDeviceExpand(const Node& node, const DeviceLowering& lowering);
MaybeStep MakeDeviceConcat(const Node& node, const DeviceLowering& lowering);
MaybeStep MakeDeviceSplit(const Node& node, const DeviceLowering& lowering);
MaybeStep MakeDeviceByteLayer(const Node& node, const DeviceLowering& lowering);
MaybeStep MakeDeviceBytePool(const Node& node, const DeviceLowering& lowering);
MaybeStep MakeDeviceLookup(const Node& node, const DeviceLowering& lowering);
MaybeStep MakeDeviceQuantize(const Node& node, const DeviceLowering& lowering);
MaybeStep MakeDeviceDequantize(const Node& node,
                               const DeviceLowering& lowering);
MaybeStep MakeDeviceMeasure(const Node& node, const DeviceLowering& lowering);
MaybeStep MakeDeviceCast(const Node& node, const DeviceLowering& lowering);

}  // namespace millrace::models::graph
