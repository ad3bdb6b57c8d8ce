// What moves values on a GPU: copies between strides, gathering, casts.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/graph/cuda/device_step.h"
#include "models/graph/op.h"
#include "models/graph/ops/broadcast.h"
#include "models/graph/ops/slice.h"

namespace millrace::models::graph {
namespace {

int AxisOf(const Node& node, int64_t otherwise, int rank) {
  const int64_t axis = node.attrs.Int("axis", otherwise);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

bool IsMoved(const DeviceLowering& lowering, ValueId id) {
  return lowering.IsFloat(id) || lowering.IsByte(id);
}

// One copy between a place in an operand and a place in a result.
struct Copy {
  Slot from;
  Slot to;
  int64_t from_first = 0;
  int64_t to_first = 0;
  cuda::CopyStridedArgs args = {};
};
Copy CopyOf(const DeviceLowering& lowering, ValueId from, ValueId to,
            const Shape& sizes, const Shape& from_strides,
            const Shape& to_strides) {
  Copy copy = {.from = lowering.slot(from), .to = lowering.slot(to)};
  copy.args.rank = sizes.rank();
  copy.args.count = sizes.num_elements();
  std::copy(sizes.begin(), sizes.end(), copy.args.sizes);
  std::copy(from_strides.begin(), from_strides.end(), copy.args.from_strides);
  std::copy(to_strides.begin(), to_strides.end(), copy.args.to_strides);
  return copy;
}

DeviceStep CopyStep(std::string text, std::vector<Copy> copies) {
  DeviceStep step;
  step.text = std::move(text);
  step.launch = [copies = std::move(copies)](const cuda::Module& module,
                                             cuda::Stream stream,
                                             const DeviceSlots& slots) {
    for (const Copy& copy : copies) {
      cuda::CopyStridedArgs args = copy.args;
      args.from = slots.in(copy.from) + copy.from_first;
      args.to = slots.out(copy.to) + copy.to_first;
      if (const int error = module.graph_copy_strided(stream, args);
          error != 0) {
        return error;
      }
    }
    return 0;
  };
  return step;
}

std::string OneText(const Node& node, const DeviceLowering& lowering) {
  return std::string(node.op->name) + " " +
         lowering.shape(node.inputs[0]).ToString() + " -> " +
         lowering.shape(node.outputs[0]).ToString();
}

// The whole result from one operand at strides.
MaybeStep OneCopy(const Node& node, const DeviceLowering& lowering,
                  const Shape& strides, int64_t first) {
  const Shape& out = lowering.shape(node.outputs[0]);
  Copy copy = CopyOf(lowering, node.inputs[0], node.outputs[0], out, strides,
                     out.Strides());
  copy.from_first = first;
  return CopyStep(OneText(node, lowering), {copy});
}

}  // namespace

DeviceStep MakeDeviceConversion(Slot from, Slot to, int64_t count) {
  Copy copy = {.from = from, .to = to};
  copy.args.rank = 1;
  copy.args.count = copy.args.sizes[0] = count;
  copy.args.from_strides[0] = copy.args.to_strides[0] = 1;
  return CopyStep("Convert " + std::to_string(count) + " to f32", {copy});
}

MaybeStep MakeDeviceTranspose(const Node& node,
                              const DeviceLowering& lowering) {
  if (!IsMoved(lowering, node.inputs[0])) return std::nullopt;
  const Shape own = lowering.shape(node.inputs[0]).Strides();
  const std::vector<int64_t>& perm = node.attrs.Ints("perm");
  Shape strides;
  for (int i = 0; i < own.rank(); ++i) {
    strides.Append(
        own[perm.empty() ? own.rank() - 1 - i
                         : static_cast<int>(perm[static_cast<size_t>(i)])]);
  }
  return OneCopy(node, lowering, strides, 0);
}

MaybeStep MakeDeviceExpand(const Node& node, const DeviceLowering& lowering) {
  if (!IsMoved(lowering, node.inputs[0])) return std::nullopt;
  return OneCopy(node, lowering,
                 BroadcastStrides(lowering.shape(node.inputs[0]),
                                  lowering.shape(node.outputs[0])),
                 0);
}

MaybeStep MakeDeviceSlice(const Node& node, const DeviceLowering& lowering) {
  if (!IsMoved(lowering, node.inputs[0])) return std::nullopt;
  std::vector<Arg> args;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    Arg& arg = args.emplace_back();
    if (node.inputs[i] == kNoValue) continue;
    const Tensor* constant = lowering.constant(node.inputs[i]);
    if (i > 0 && constant == nullptr) return std::nullopt;
    arg = {true, lowering.type(node.inputs[i]).dtype,
           lowering.shape(node.inputs[i]),
           constant == nullptr ? nullptr : constant->bytes()};
  }
  const StatusOr<SlicePart> part = SlicePartOf({node, args});
  if (!part.ok() || part->shape != lowering.shape(node.outputs[0])) {
    return std::nullopt;
  }
  return OneCopy(node, lowering, part->strides, part->first);
}

MaybeStep MakeDeviceConcat(const Node& node, const DeviceLowering& lowering) {
  const Shape& out = lowering.shape(node.outputs[0]);
  const int axis = AxisOf(node, 0, out.rank());
  const Shape strides = out.Strides();
  std::vector<Copy> copies;
  int64_t at = 0;
  for (const ValueId id : node.inputs) {
    if (id == kNoValue || !IsMoved(lowering, id)) return std::nullopt;
    const Shape& in = lowering.shape(id);
    Copy copy =
        CopyOf(lowering, id, node.outputs[0], in, in.Strides(), strides);
    copy.to_first = at * strides[axis];
    at += in[axis];
    copies.push_back(copy);
  }
  return CopyStep(
      "Concat of " + std::to_string(copies.size()) + " -> " + out.ToString(),
      std::move(copies));
}

MaybeStep MakeDeviceSplit(const Node& node, const DeviceLowering& lowering) {
  if (!IsMoved(lowering, node.inputs[0])) return std::nullopt;
  const Shape& in = lowering.shape(node.inputs[0]);
  const int axis = AxisOf(node, 0, in.rank());
  const Shape strides = in.Strides();
  std::vector<Copy> copies;
  int64_t at = 0;
  for (const ValueId id : node.outputs) {
    // An output that is not used has no shape here, so the next ones' places
    // are not known.
    if (id == kNoValue) return std::nullopt;
    const Shape& out = lowering.shape(id);
    Copy copy =
        CopyOf(lowering, node.inputs[0], id, out, strides, out.Strides());
    copy.from_first = at * strides[axis];
    at += out[axis];
    copies.push_back(copy);
  }
  return CopyStep(
      "Split " + in.ToString() + " in " + std::to_string(copies.size()),
      std::move(copies));
}

MaybeStep MakeDeviceGather(const Node& node, const DeviceLowering& lowering) {
  const DType indices = lowering.type(node.inputs[1]).dtype;
  const bool in_bytes = lowering.IsByte(node.inputs[0]);
  if ((!in_bytes && !lowering.IsFloat(node.inputs[0])) ||
      (indices != DType::kI64 && indices != DType::kI32)) {
    return std::nullopt;
  }
  const Shape& x = lowering.shape(node.inputs[0]);
  const int axis = AxisOf(node, 0, x.rank());
  cuda::GatherSlicesArgs fixed = {};
  fixed.outer = x.Product(0, axis);
  fixed.size = x[axis];
  fixed.run = x.Product(axis + 1, x.rank());
  if (in_bytes) {
    // As many floats, whose bits are only moved.
    if (fixed.run % 4 != 0) return std::nullopt;
    fixed.run /= 4;
  }
  fixed.count = lowering.shape(node.inputs[1]).num_elements();
  fixed.wide = indices == DType::kI64;
  const Slot from = lowering.slot(node.inputs[0]);
  const Slot at = lowering.slot(node.inputs[1]);
  const Slot to = lowering.slot(node.outputs[0]);
  DeviceStep step;
  step.text = OneText(node, lowering);
  step.checks_indices = true;
  step.index_size = fixed.size;
  step.launch = [=](const cuda::Module& module, cuda::Stream stream,
                    const DeviceSlots& slots) {
    const int checked = module.graph_check_indices(
        stream,
        {slots.at[at], fixed.wide, fixed.count, fixed.size, slots.found});
    if (checked != 0) return checked;
    cuda::GatherSlicesArgs args = fixed;
    args.indices = slots.at[at];
    args.x = slots.in(from);
    args.y = slots.out(to);
    if (in_bytes) {
      args.x.format = args.y.format = cuda::GraphFormat::kF32;
    }
    return module.graph_gather(stream, args);
  };
  return step;
}

MaybeStep MakeDeviceCast(const Node& node, const DeviceLowering& lowering) {
  const DType type = lowering.type(node.inputs[0]).dtype;
  if (!lowering.IsFloat(node.outputs[0])) return std::nullopt;
  cuda::CastArgs fixed = {};
  if (type == DType::kI64) {
    fixed.type = cuda::CastFrom::kI64;
  } else if (type == DType::kI32) {
    fixed.type = cuda::CastFrom::kI32;
  } else if (type == DType::kU8) {
    fixed.type = cuda::CastFrom::kU8;
  } else if (type == DType::kBool) {
    fixed.type = cuda::CastFrom::kBool;
  } else {
    return std::nullopt;
  }
  fixed.count = lowering.shape(node.outputs[0]).num_elements();
  const Slot from = lowering.slot(node.inputs[0]);
  const Slot to = lowering.slot(node.outputs[0]);
  DeviceStep step;
  step.text = OneText(node, lowering);
  step.launch = [=](const cuda::Module& module, cuda::Stream stream,
                    const DeviceSlots& slots) {
    cuda::CastArgs args = fixed;
    args.from = slots.at[from];
    args.to = slots.floats_out(to);
    return module.graph_cast(stream, args);
  };
  return step;
}

}  // namespace millrace::models::graph
