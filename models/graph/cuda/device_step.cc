#include "models/graph/cuda/device_step.h"

#include <string_view>

#include "models/graph/op.h"
#include "models/graph/passes/fused.h"

namespace millrace::models::graph {
namespace {

using Maker = MaybeStep (*)(const Node&, const DeviceLowering&);

struct FusedRow {
  const OpDef* op;
  Maker make;
};
constexpr FusedRow kFused[] = {
    {&fused::kAttention, MakeDeviceAttention},
    {&fused::kByteConv, MakeDeviceByteLayer},
    {&fused::kByteConvTranspose, MakeDeviceByteLayer},
    {&fused::kByteLinear, MakeDeviceByteLayer},
    {&fused::kBytePointwise, MakeDevicePointwise},
    {&fused::kBytePool, MakeDeviceBytePool},
    {&fused::kConv, MakeDeviceConv},
    {&fused::kConvTranspose, MakeDeviceConv},
    {&fused::kGroupNorm, MakeDeviceGroupNorm},
    {&fused::kLinear, MakeDeviceLinear},
    {&fused::kLookup, MakeDeviceLookup},
    {&fused::kMatMul, MakeDeviceMatMul},
    {&fused::kPointwise, MakeDevicePointwise},
    {&fused::kPool, MakeDevicePool},
    {&fused::kVolumeConv, MakeDeviceConv},
};

struct Row {
  std::string_view op;
  Maker make;
};
constexpr Row kRows[] = {
    {"Cast", MakeDeviceCast},
    {"Concat", MakeDeviceConcat},
    {"DequantizeLinear", MakeDeviceDequantize},
    {"DynamicQuantizeLinear", MakeDeviceMeasure},
    {"Expand", MakeDeviceExpand},
    {"Gather", MakeDeviceGather},
    {"LayerNormalization", MakeDeviceNorm},
    {"LogSoftmax", MakeDeviceSoftmax},
    {"QuantizeLinear", MakeDeviceQuantize},
    {"RMSNormalization", MakeDeviceNorm},
    {"ReduceL2", MakeDeviceReduce},
    {"ReduceMax", MakeDeviceReduce},
    {"ReduceMean", MakeDeviceReduce},
    {"ReduceMin", MakeDeviceReduce},
    {"ReduceSum", MakeDeviceReduce},
    {"ReduceSumSquare", MakeDeviceReduce},
    {"Slice", MakeDeviceSlice},
    {"Softmax", MakeDeviceSoftmax},
    {"Split", MakeDeviceSplit},
    {"Transpose", MakeDeviceTranspose},
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
