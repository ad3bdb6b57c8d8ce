#include "models/graph/cuda/device_step.h"

#include <string_view>

#include "models/graph/op.h"
#include "models/graph/passes/fused.h"

namespace millrace::models::graph {
namespace {

using Maker = MaybeStep (*)(const Node&, const DeviceLowering&);

// Operands that kernels read in 16 bits, too. Weights and biases are f32.
constexpr uint32_t kFirst = 1;
constexpr uint32_t kAll = ~uint32_t{0};
constexpr uint32_t kBehindLayers = 1u << fused::kResidual | 1u << fused::kGate;
constexpr NarrowUse kConv = {kFirst | kBehindLayers, true};
constexpr NarrowUse kProduct = {3 | kBehindLayers, true};
constexpr NarrowUse kHeads = {7, true};  // not the mask
constexpr NarrowUse kOne = {kFirst, true};
constexpr NarrowUse kEach = {kAll, true};
constexpr NarrowUse kSum = {kFirst, false};  // few results, maybe great ones
constexpr NarrowUse kNone = {};

struct FusedRow {
  const OpDef* op;
  Maker make;
  NarrowUse narrow;
};
constexpr FusedRow kFused[] = {
    {&fused::kAttention, MakeDeviceAttention, kHeads},
    {&fused::kByteConv, MakeDeviceByteLayer, kNone},
    {&fused::kByteConvTranspose, MakeDeviceByteLayer, kNone},
    {&fused::kByteLinear, MakeDeviceByteLayer, kNone},
    {&fused::kBytePointwise, MakeDevicePointwise, kEach},
    {&fused::kBytePool, MakeDeviceBytePool, kNone},
    {&fused::kConv, MakeDeviceConv, kConv},
    {&fused::kConvTranspose, MakeDeviceConv, kConv},
    {&fused::kGroupNorm, MakeDeviceGroupNorm, kOne},
    {&fused::kLinear, MakeDeviceLinear, kProduct},
    {&fused::kLookup, MakeDeviceLookup, kNone},
    {&fused::kMatMul, MakeDeviceMatMul, kProduct},
    {&fused::kPointwise, MakeDevicePointwise, kEach},
    {&fused::kPool, MakeDevicePool, kOne},
    {&fused::kVolumeConv, MakeDeviceConv, kConv},
};

struct Row {
  std::string_view op;
  Maker make;
  NarrowUse narrow;
};
constexpr Row kRows[] = {
    {"Cast", MakeDeviceCast, kNone},
    {"Concat", MakeDeviceConcat, kEach},
    {"DequantizeLinear", MakeDeviceDequantize, kNone},
    {"DynamicQuantizeLinear", MakeDeviceMeasure, kNone},
    {"Expand", MakeDeviceExpand, kOne},
    {"Gather", MakeDeviceGather, kOne},
    {"LayerNormalization", MakeDeviceNorm, kOne},
    {"LogSoftmax", MakeDeviceSoftmax, kOne},
    {"QuantizeLinear", MakeDeviceQuantize, kNone},
    {"RMSNormalization", MakeDeviceNorm, kOne},
    {"ReduceL2", MakeDeviceReduce, kSum},
    {"ReduceMax", MakeDeviceReduce, kSum},
    {"ReduceMean", MakeDeviceReduce, kSum},
    {"ReduceMin", MakeDeviceReduce, kSum},
    {"ReduceSum", MakeDeviceReduce, kSum},
    {"ReduceSumSquare", MakeDeviceReduce, kSum},
    {"Slice", MakeDeviceSlice, kOne},
    {"Softmax", MakeDeviceSoftmax, kOne},
    {"Split", MakeDeviceSplit, kOne},
    {"Transpose", MakeDeviceTranspose, kOne},
};

// Values without elements are the cores' to think about, and results that are
// neither floats nor bytes: wider integers are few, and mostly sizes.
bool MayRunOnDevice(const Node& node, const DeviceLowering& lowering) {
  for (const auto* ids : {&node.inputs, &node.outputs}) {
    for (const ValueId id : *ids) {
      if (id == kNoValue) continue;
      if (lowering.shape(id).num_elements() == 0) return false;
    }
  }
  for (const ValueId id : node.outputs) {
    if (id != kNoValue && !lowering.IsFloat(id) && !lowering.IsByte(id)) {
      return false;
    }
  }
  return node.bodies.empty() && !node.outputs.empty() &&
         node.outputs[0] != kNoValue;
}

}  // namespace

NarrowUse NarrowUseOf(const Node& node) {
  for (const FusedRow& row : kFused) {
    if (row.op == node.op) return row.narrow;
  }
  for (const Row& row : kRows) {
    if (node.Is(row.op)) return row.narrow;
  }
  return kNone;
}

MaybeStep LowerToDevice(const Node& node, const DeviceLowering& lowering) {
  if (!MayRunOnDevice(node, lowering)) return std::nullopt;
  for (const FusedRow& row : kFused) {
    if (row.op == node.op) return row.make(node, lowering);
  }
  for (const Row& row : kRows) {
    if (node.Is(row.op)) return row.make(node, lowering);
  }
  return std::nullopt;
}

}  // namespace millrace::models::graph
