// Elementwise programs, normalisations, softmax and reductions on a GPU.
#include <algorithm>
#include <string>
#include <vector>

#include "models/graph/cuda/device_step.h"
#include "models/graph/fused_params.h"
#include "models/graph/ops/broadcast.h"
#include "models/graph/ops/one_row.h"
#include "models/graph/passes/fused.h"

namespace millrace::models::graph {
namespace {

Slot Operand(const Node& node, const DeviceLowering& lowering, size_t i) {
  return i < node.inputs.size() ? lowering.slot(node.inputs[i]) : kNoSlot;
}

bool IsFloatOrNone(const Node& node, const DeviceLowering& lowering, size_t i) {
  return i >= node.inputs.size() || node.inputs[i] == kNoValue ||
         lowering.IsFloat(node.inputs[i]);
}

// An axis given from the end or from the front.
int AxisOf(const Node& node, int64_t otherwise, int rank) {
  const int64_t axis = node.attrs.Int("axis", otherwise);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

DeviceStep NormalizeStep(const Node& node, const DeviceLowering& lowering,
                         const cuda::NormalizeArgs& fixed, std::string text) {
  const Slot x = lowering.slot(node.inputs[0]);
  const Slot weight = Operand(node, lowering, 1);
  const Slot bias = Operand(node, lowering, 2);
  const Slot y = lowering.slot(node.outputs[0]);
  DeviceStep step;
  step.text = std::move(text);
  step.launch = [=](const cuda::Module& module, cuda::Stream stream,
                    const DeviceSlots& slots) {
    cuda::NormalizeArgs args = fixed;
    args.x = slots.in(x);
    args.weight = slots.floats_in(weight);
    args.bias = slots.floats_in(bias);
    args.y = slots.out(y);
    return module.graph_normalize(stream, args);
  };
  return step;
}

}  // namespace

MaybeStep MakeDevicePointwise(const Node& node,
                              const DeviceLowering& lowering) {
  const auto& params = ParamsOf<PointwiseParams>(node.attrs);
  const Shape& out = lowering.shape(node.outputs[0]);
  if (node.inputs.size() > cuda::kMostOperands ||
      params.program.size() > cuda::kMostInstructions) {
    return std::nullopt;
  }
  cuda::PointwiseArgs fixed = {};
  fixed.rank = out.rank();
  fixed.num_operands = static_cast<int32_t>(node.inputs.size());
  fixed.num_instructions = static_cast<int32_t>(params.program.size());
  fixed.count = out.num_elements();
  std::vector<Slot> operands;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const bool in_bytes = i < params.scales.size() && params.scales[i].given();
    if (in_bytes ? !lowering.IsByte(node.inputs[i])
                 : !lowering.IsFloat(node.inputs[i])) {
      return std::nullopt;
    }
    if (in_bytes) {
      fixed.scales[i] = params.scales[i].scale;
      fixed.zeros[i] = params.scales[i].zero;
    }
    operands.push_back(lowering.slot(node.inputs[i]));
    const Shape strides = BroadcastStrides(lowering.shape(node.inputs[i]), out);
    std::copy(strides.begin(), strides.end(), fixed.strides[i]);
  }
  std::copy(out.begin(), out.end(), fixed.sizes);
  for (size_t i = 0; i < params.program.size(); ++i) {
    const Instruction& op = params.program[i];
    fixed.program[i] = {static_cast<cuda::Operation>(op.kind),
                        static_cast<cuda::Function>(op.f),
                        op.x,
                        op.y,
                        op.a,
                        op.b};
  }
  if (!params.scales.empty() && params.scales.back().given()) {
    fixed.y_scale = 1.0f / params.scales.back().scale;
    fixed.y_zero = params.scales.back().zero;
  }
  static_assert(static_cast<int>(cuda::Operation::kAdd) ==
                static_cast<int>(Pointwise::kAdd));
  static_assert(static_cast<int>(cuda::Operation::kMax) ==
                static_cast<int>(Pointwise::kMax));
  const Slot y = lowering.slot(node.outputs[0]);
  DeviceStep step;
  step.text = (params.scales.empty() ? "Pointwise " : "Int8 Pointwise ") +
              out.ToString() + ", " + std::to_string(params.program.size()) +
              " functions of " + std::to_string(operands.size());
  step.launch = [=](const cuda::Module& module, cuda::Stream stream,
                    const DeviceSlots& slots) {
    cuda::PointwiseArgs args = fixed;
    for (size_t i = 0; i < operands.size(); ++i) {
      args.x[i] = slots.in(operands[i]);
    }
    args.y = slots.out(y);
    return module.graph_pointwise(stream, args);
  };
  return step;
}

MaybeStep MakeDeviceGroupNorm(const Node& node,
                              const DeviceLowering& lowering) {
  const auto& params = ParamsOf<GroupNormParams>(node.attrs);
  const Shape& x = lowering.shape(node.inputs[0]);
  for (size_t i = 0; i < 3; ++i) {
    if (!IsFloatOrNone(node, lowering, i)) return std::nullopt;
  }
  const int64_t pixels = x.Product(1, x.rank() - 1);
  cuda::NormalizeArgs fixed = {};
  fixed.items = x[0];
  fixed.pixels = pixels;
  fixed.channels = x.back();
  fixed.groups = params.num_groups;
  fixed.centred = true;
  fixed.eps = static_cast<float>(params.epsilon);
  return NormalizeStep(node, lowering, fixed,
                       "GroupNorm " + std::to_string(x[0]) + " x " +
                           std::to_string(pixels) + " x " +
                           std::to_string(x.back()) + ", " +
                           std::to_string(params.num_groups) + " groups");
}

// Over the last axes, with a scale and bias that all rows have in common.
MaybeStep MakeDeviceNorm(const Node& node, const DeviceLowering& lowering) {
  const Shape& x = lowering.shape(node.inputs[0]);
  if (!lowering.IsFloat(node.inputs[0])) return std::nullopt;
  for (size_t i = 1; i < node.outputs.size(); ++i) {
    if (node.outputs[i] != kNoValue) return std::nullopt;  // statistics
  }
  const int axis = AxisOf(node, -1, x.rank());
  if (axis < 0 || axis >= x.rank()) return std::nullopt;
  cuda::NormalizeArgs fixed = {};
  fixed.items = x.Product(0, axis);
  fixed.pixels = 1;
  fixed.channels = x.Product(axis, x.rank());
  fixed.groups = 1;
  fixed.centred = node.Is("LayerNormalization");
  fixed.eps = static_cast<float>(node.attrs.Float("epsilon", 1e-5));
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue) continue;
    if (!lowering.IsFloat(node.inputs[i]) ||
        !IsOneRow(lowering.shape(node.inputs[i]), x, axis)) {
      return std::nullopt;
    }
  }
  return NormalizeStep(node, lowering, fixed,
                       std::string(node.op->name) + " " +
                           std::to_string(fixed.items) + " x " +
                           std::to_string(fixed.channels));
}

MaybeStep MakeDeviceSoftmax(const Node& node, const DeviceLowering& lowering) {
  const Shape& x = lowering.shape(node.inputs[0]);
  if (!lowering.IsFloat(node.inputs[0]) || x.rank() == 0) return std::nullopt;
  const int axis = AxisOf(node, -1, x.rank());
  cuda::SoftmaxArgs fixed = {};
  fixed.outer = x.Product(0, axis);
  fixed.size = x[axis];
  fixed.inner = x.Product(axis + 1, x.rank());
  fixed.logarithm = node.Is("LogSoftmax");
  const Slot in = lowering.slot(node.inputs[0]);
  const Slot out = lowering.slot(node.outputs[0]);
  DeviceStep step;
  step.text = std::string(node.op->name) + " " +
              std::to_string(fixed.outer * fixed.inner) + " x " +
              std::to_string(fixed.size);
  step.launch = [=](const cuda::Module& module, cuda::Stream stream,
                    const DeviceSlots& slots) {
    cuda::SoftmaxArgs args = fixed;
    args.x = slots.in(in);
    args.y = slots.out(out);
    return module.graph_softmax(stream, args);
  };
  return step;
}

// Over neighbouring axes that are known.
MaybeStep MakeDeviceReduce(const Node& node, const DeviceLowering& lowering) {
  const Shape& x = lowering.shape(node.inputs[0]);
  if (!lowering.IsFloat(node.inputs[0])) return std::nullopt;
  std::vector<bool> gone(static_cast<size_t>(x.rank()));
  if (node.inputs.size() > 1 && node.inputs[1] != kNoValue) {
    const Tensor* axes = lowering.constant(node.inputs[1]);
    if (axes == nullptr || axes->dtype() != DType::kI64) return std::nullopt;
    for (int64_t i = 0; i < axes->num_elements(); ++i) {
      const int64_t axis = axes->data<int64_t>()[i];
      gone[static_cast<size_t>(axis < 0 ? axis + x.rank() : axis)] = true;
    }
  }
  if (std::find(gone.begin(), gone.end(), true) == gone.end()) {
    if (node.attrs.Int("noop_with_empty_axes", 0) != 0) return std::nullopt;
    std::fill(gone.begin(), gone.end(), true);
  }
  cuda::ReduceArgs fixed = {};
  fixed.outer = fixed.size = fixed.inner = 1;
  for (int i = 0; i < x.rank(); ++i) {
    if (x[i] == 1) continue;
    if (!gone[static_cast<size_t>(i)]) {
      (fixed.size == 1 ? fixed.outer : fixed.inner) *= x[i];
    } else if (fixed.inner > 1) {
      return std::nullopt;
    } else {
      fixed.size *= x[i];
    }
  }
  using cuda::ReduceOf;
  fixed.kind = node.Is("ReduceSum")         ? ReduceOf::kSum
               : node.Is("ReduceMean")      ? ReduceOf::kMean
               : node.Is("ReduceMax")       ? ReduceOf::kMax
               : node.Is("ReduceMin")       ? ReduceOf::kMin
               : node.Is("ReduceSumSquare") ? ReduceOf::kSumSquare
                                            : ReduceOf::kL2;
  const Slot in = lowering.slot(node.inputs[0]);
  const Slot out = lowering.slot(node.outputs[0]);
  DeviceStep step;
  step.text = std::string(node.op->name) + " " + std::to_string(fixed.outer) +
              " x " + std::to_string(fixed.size) + " x " +
              std::to_string(fixed.inner);
  step.launch = [=](const cuda::Module& module, cuda::Stream stream,
                    const DeviceSlots& slots) {
    cuda::ReduceArgs args = fixed;
    args.x = slots.in(in);
    args.y = slots.out(out);
    return module.graph_reduce(stream, args);
  };
  return step;
}

}  // namespace millrace::models::graph
