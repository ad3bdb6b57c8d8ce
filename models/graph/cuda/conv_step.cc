// Convolutions on a GPU, straight and transposed: by the kernels here, or by
// cuDNN where the graph's device has it and it has an engine for the layer.
#include <optional>
#include <string>

#include "models/graph/cuda/device_step.h"
#include "models/graph/cuda/device_window.h"
#include "models/graph/cuda/layer_parts.h"
#include "models/graph/fused_params.h"
#include "models/graph/passes/fused.h"

namespace millrace::models::graph {
namespace {

using cuda::GraphWindow;

ConvPlaces PlacesOf(const DeviceSlots& slots, Slot x, Slot y,
                    const LayerEnd& end) {
  const auto at = [&](Slot slot) {
    return slot == kNoSlot ? nullptr : slots.at[slot];
  };
  return {.x = at(x),
          .w = slots.packed,
          .bias = at(end.bias),
          .residual = at(end.residual),
          .gate = at(end.gate),
          .y = at(y),
          .workspace = slots.scratch};
}

// Images of constants are not in the plan's arena.
const CudnnConvolution* CudnnFor(const Node& node,
                                 const DeviceLowering& lowering,
                                 const LayerEnd& end,
                                 cuda::GraphConvArgs args) {
  if (lowering.conv == nullptr || lowering.formats.empty() || args.batch == 0 ||
      lowering.constant(node.inputs[0]) != nullptr ||
      lowering.constant(node.inputs[1]) == nullptr) {
    return nullptr;
  }
  const auto format = [&](Slot slot) {
    return slot == kNoSlot
               ? std::nullopt
               : std::optional(lowering.formats[static_cast<size_t>(slot)]);
  };
  args.precision = lowering.precision;
  args.epilogue = end.fixed;
  const std::optional<ConvShape> shape =
      ConvLayers::ShapeOf(args, {.x = *format(lowering.slot(node.inputs[0])),
                                 .y = *format(lowering.slot(node.outputs[0])),
                                 .residual = format(end.residual),
                                 .gate = format(end.gate),
                                 .has_bias = end.bias != kNoSlot});
  return shape ? lowering.conv->Choose(*shape) : nullptr;
}

}  // namespace

MaybeStep MakeDeviceConv(const Node& node, const DeviceLowering& lowering) {
  if (!AllFloats(node, lowering)) return std::nullopt;
  const auto& params = ParamsOf<ConvParams>(node.attrs);
  const Shape& x = lowering.shape(node.inputs[0]);
  const Shape& y = lowering.shape(node.outputs[0]);
  const std::optional<GraphWindow> window = DeviceWindowOf(params.window, x, y);
  if (!window || !FitsInt32(x.back()) || !FitsInt32(y.back()))
    return std::nullopt;
  cuda::GraphConvArgs fixed = {};
  fixed.window = *window;
  fixed.batch = x[0];
  fixed.channels = static_cast<int32_t>(x.back());
  fixed.outputs = static_cast<int32_t>(y.back());
  fixed.groups = static_cast<int32_t>(params.groups);
  fixed.transposed = node.op == &fused::kConvTranspose;
  const LayerEnd end(node, lowering);
  const CudnnConvolution* cudnn = CudnnFor(node, lowering, end, fixed);
  // Weights that come in a run are f32's.
  const bool packs =
      cudnn != nullptr || (lowering.precision != cuda::GraphPrecision::kF32 &&
                           cuda::GroupsOnTensors(params.groups, y.back()) &&
                           lowering.constant(node.inputs[1]) != nullptr);
  const Slot in = lowering.slot(node.inputs[0]);
  const Slot weight = lowering.slot(node.inputs[1]);
  const Slot out = lowering.slot(node.outputs[0]);
  const auto num_taps =
      int64_t{window->kernel[0]} * window->kernel[1] * window->kernel[2];
  const int64_t channels = x.back() / params.groups;
  const int64_t outputs = y.back() / params.groups;
  const int64_t pieces =
      packs && cudnn == nullptr
          ? cuda::PiecesOf(lowering.precision, num_taps * channels, outputs)
          : 1;
  // Blocks share no pieces of a group.
  const int64_t partial_sums =
      params.groups > 1
          ? 0
          : cuda::PartialSums(pieces, y.num_elements() / outputs, outputs, 1);
  DeviceStep step;
  step.scratch_bytes = partial_sums * BytesOf(cuda::GraphFormat::kF32);
  step.text =
      (fixed.transposed ? "ConvTranspose " : "Conv ") +
      DeviceWindowText(*window, x[0], x.back(), y.back()) +
      (params.groups > 1 ? ", " + std::to_string(params.groups) + " groups"
                         : "") +
      PiecesText(pieces, partial_sums) + end.Text() +
      PrecisionText(packs ? lowering.precision : fixed.precision);
  if (cudnn != nullptr) {
    step.library = Library::kCudnn;
    step.failed = [layers = lowering.conv](int error) {
      return layers->Failed(error);
    };
    step.scratch_bytes = cudnn->workspace_bytes();
    step.text += " by cuDNN";
  }
  if (packs) {
    fixed.precision = lowering.precision;
    step.packed = FactorsOf(
        lowering.graph, node.inputs[1], fixed.precision,
        {.outputs = y.back(),
         .groups = params.groups,
         .taps = num_taps,
         .channels = channels,
         .output_stride = fixed.transposed ? num_taps : channels * num_taps,
         .tap_stride = 1,
         .channel_stride = fixed.transposed ? outputs * num_taps : num_taps,
         .group_stride = channels * outputs * num_taps});
    fixed.packed_w.row_bytes =
        PackedRowBytes(fixed.precision, num_taps * channels);
  }
  const Shape& pixels = fixed.transposed ? x : y;
  const Shape& others = fixed.transposed ? y : x;
  step.macs = static_cast<double>(pixels.num_elements() * num_taps) *
              static_cast<double>(others.back() / params.groups);
  step.launch = [=, layers = lowering.conv](const cuda::Module& module,
                                            cuda::Stream stream,
                                            const DeviceSlots& slots) {
    if (cudnn != nullptr) {
      return layers->Convolve(*cudnn, fixed.batch,
                              PlacesOf(slots, in, out, end), stream);
    }
    cuda::GraphConvArgs args = fixed;
    args.x = slots.in(in);
    args.w = slots.floats_in(weight);
    args.packed_w.data = slots.packed;
    args.y = slots.out(out);
    args.epilogue = end.At(slots);
    if (partial_sums > 0) {
      args.partial = reinterpret_cast<float*>(slots.scratch);
    }
    return module.graph_conv(stream, args);
  };
  return step;
}

}  // namespace millrace::models::graph
