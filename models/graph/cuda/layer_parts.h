// What layers on a GPU have in common: what is behind a layer, its packed
// weights, and what it says of itself.
#pragma once

#include <cstdint>
#include <string>

#include "models/cuda/graph_kernels.h"
#include "models/graph/cuda/device_step.h"
#include "models/graph/cuda/pack_factors.h"
#include "models/graph/ir.h"

namespace millrace::models::graph {

// What is behind a layer; its pointers are set in a run.
struct LayerEnd {
  cuda::GraphEpilogue fixed = {};
  Slot bias = kNoSlot;
  Slot residual = kNoSlot;
  Slot gate = kNoSlot;

  LayerEnd(const Node& node, const DeviceLowering& lowering);
  cuda::GraphEpilogue At(const DeviceSlots& slots) const;
  std::string Text() const;
};

bool AllFloats(const Node& node, const DeviceLowering& lowering);

// A constant as tensor cores read it.
PackedConstant FactorsOf(const Graph& graph, ValueId value,
                         cuda::GraphPrecision precision,
                         const WeightOrder& order);

// Behind what a step says of itself; "" for f32.
std::string PrecisionText(cuda::GraphPrecision precision);
// What a step says of a sum that is cut, and of blocks that share its pieces.
std::string PiecesText(int64_t pieces, int64_t partial_sums);

}  // namespace millrace::models::graph
