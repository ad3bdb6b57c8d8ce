// Layers, pools and arrays of bytes on a GPU. What becomes of a sum is resolved
// as for the cores (plan/byte_layer.h), so results have the same bytes.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/graph/cuda/device_step.h"
#include "models/graph/cuda/device_window.h"
#include "models/graph/fused_params.h"
#include "models/graph/passes/bytes.h"
#include "models/graph/passes/fused.h"
#include "models/graph/plan/byte_layer.h"

namespace millrace::models::graph {
namespace {

// Arrays that a step has of its own, each at a multiple of 16 bytes.
class OwnArrays {
 public:
  // Where it lies; -1 where there are no values.
  template <typename T>
  int64_t Add(const T* values, size_t count) {
    if (count == 0) return -1;
    const size_t at = (bytes_.size() + 15) / 16 * 16;
    bytes_.resize(at + count * sizeof(T));
    std::memcpy(bytes_.data() + at, values, count * sizeof(T));
    return static_cast<int64_t>(at);
  }
  template <typename T>
  int64_t Add(const std::vector<T>& values) {
    return Add(values.data(), values.size());
  }
  std::vector<std::byte> Take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};
template <typename T>
const T* OwnAt(const DeviceSlots& slots, int64_t at) {
  return at < 0 ? nullptr : reinterpret_cast<const T*>(slots.own + at);
}

// What is behind a layer; its pointers are set in a run.
struct LayerEnd {
  cuda::GraphByteEpilogue fixed = {};
  int64_t offset, scale, bias, middle_bias, lookup, padding;
  Slot residual, x_scale, x_zero;
  bool residual_is_bytes;
  bool gives_bytes;

  LayerEnd(const ByteEpilogue& end, OwnArrays& own)
      : offset(own.Add(end.offset())),
        scale(own.Add(end.scale())),
        bias(own.Add(end.bias())),
        middle_bias(own.Add(end.middle_bias())),
        lookup(own.Add(end.lookup(), end.lookup() == nullptr ? 0 : 256)),
        padding(own.Add(
            std::vector<uint8_t>(static_cast<size_t>(cuda::kPackedUnit),
                                 static_cast<uint8_t>(end.known_x_zero())))),
        residual(end.residual()),
        x_scale(end.x_scale()),
        x_zero(end.x_zero()),
        residual_is_bytes(end.residual_is_bytes()),
        gives_bytes(end.gives_bytes()) {
    const Int8Epilogue& e = end.fixed();
    fixed.middle_scale = e.middle_scale;
    fixed.middle_low = e.middle_low;
    fixed.middle_high = e.middle_high;
    fixed.f = static_cast<cuda::Function>(e.f);
    fixed.a = e.a;
    fixed.b = e.b;
    fixed.residual_scale = e.residual_scale;
    fixed.residual_zero = e.residual_zero;
    fixed.residual_first = e.residual_first;
    fixed.y_scale = e.y_scale;
    fixed.y_zero = e.y_zero;
  }

  void SetIn(const DeviceSlots& slots, Slot y,
             cuda::GraphByteLayerArgs& args) const {
    cuda::GraphByteEpilogue& e = args.epilogue;
    e = fixed;
    e.offset = OwnAt<int32_t>(slots, offset);
    e.scale = OwnAt<float>(slots, scale);
    e.bias = OwnAt<float>(slots, bias);
    e.middle_bias = OwnAt<float>(slots, middle_bias);
    e.lookup = OwnAt<uint8_t>(slots, lookup);
    e.x_scale = slots.floats_in(x_scale);
    e.x_zero = slots.bytes_in(x_zero);
    if (residual_is_bytes) {
      e.residual = slots.bytes_in(residual);
    } else {
      e.residual_f32 = slots.floats_in(residual);
    }
    args.padding = OwnAt<uint8_t>(slots, padding);
    if (gives_bytes) {
      args.y = slots.bytes_out(y);
    } else {
      args.y_f32 = slots.floats_out(y);
    }
  }
};

// ---- weights as the kernels read them ----
// Of outputs [n][channels][taps] each output's taps, then its channels.
std::vector<std::byte> PackRows(const SignedWeight& weight, int64_t taps) {
  const int64_t channels = weight.k / taps;
  const int64_t row_bytes = (weight.k + cuda::kPackedUnit - 1) /
                            cuda::kPackedUnit * cuda::kPackedUnit;
  std::vector<std::byte> packed(static_cast<size_t>(weight.n * row_bytes));
  for (int64_t n = 0; n < weight.n; ++n) {
    const int8_t* from = weight.values.data() + n * weight.k;
    std::byte* to = packed.data() + n * row_bytes;
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        to[tap * channels + c] = static_cast<std::byte>(from[c * taps + tap]);
      }
    }
  }
  return packed;
}
// Of channels [n][taps] four taps of each channel side by side.
std::vector<std::byte> PackDepthwise(const SignedWeight& weight) {
  const int64_t taps = weight.k;
  std::vector<std::byte> packed(
      static_cast<size_t>((taps + 3) / 4 * 4 * weight.n));
  for (int64_t c = 0; c < weight.n; ++c) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      packed[static_cast<size_t>((tap / 4 * weight.n + c) * 4 + tap % 4)] =
          static_cast<std::byte>(
              weight.values[static_cast<size_t>(c * taps + tap)]);
    }
  }
  return packed;
}
PackedConstant PackedBytesOf(ValueId value,
                             const std::shared_ptr<const Integers>& integers,
                             int outputs_axis, int64_t taps,
                             bool is_depthwise) {
  // None of those of floats.
  std::vector<int64_t> form = {-1, outputs_axis, taps, int64_t{is_depthwise},
                               integers->axis};
  form.insert(form.end(), integers->zeros.begin(), integers->zeros.end());
  return {.value = value,
          .of = integers->values,
          .form = std::move(form),
          .pack = [=] {
            const auto weight = SignedWeightOf(*integers, outputs_axis);
            CHECK(weight.has_value(), "the pass has proven the weights");
            return is_depthwise ? PackDepthwise(*weight)
                                : PackRows(*weight, taps);
          }};
}

// Whether a DequantizeLinear has one scale and zero point that a run makes.
bool IsMeasured(const Node& node, const DeviceLowering& lowering) {
  if (node.inputs.size() < 3 || node.attrs.Int("block_size", 0) != 0 ||
      !lowering.IsByte(node.inputs[0]) || !lowering.IsFloat(node.outputs[0])) {
    return false;
  }
  const ValueId scale = node.inputs[1], zero = node.inputs[2];
  return scale != kNoValue && zero != kNoValue && lowering.IsFloat(scale) &&
         lowering.IsByte(zero) && lowering.shape(scale).num_elements() == 1 &&
         lowering.shape(zero).num_elements() == 1;
}

// The sizes of a linear layer: each row is an image of one pixel.
cuda::GraphByteLayerArgs LinearArgs(const Shape& x, const Shape& y) {
  cuda::GraphByteLayerArgs args = {};
  for (int i = 0; i < 3; ++i) {
    args.window.in[i] = args.window.out[i] = args.window.kernel[i] =
        args.window.stride[i] = args.window.dilation[i] = 1;
  }
  args.batch = x.num_elements() / x.back();
  args.channels = static_cast<int32_t>(x.back());
  args.outputs = static_cast<int32_t>(y.back());
  args.groups = 1;
  return args;
}

std::optional<cuda::GraphByteLayerArgs> LayerArgs(const Node& node,
                                                  const Shape& x,
                                                  const Shape& y) {
  if (!FitsInt32(x.back()) || !FitsInt32(y.back())) return std::nullopt;
  if (node.op == &fused::kByteLinear) return LinearArgs(x, y);
  const auto& params = ParamsOf<ConvParams>(node.attrs);
  const auto window = DeviceWindowOf(params.window, x, y);
  if (!window) return std::nullopt;
  cuda::GraphByteLayerArgs args = {};
  args.window = *window;
  args.batch = x[0];
  args.channels = static_cast<int32_t>(x.back());
  args.outputs = static_cast<int32_t>(y.back());
  args.groups = static_cast<int32_t>(params.groups);
  args.transposed = node.op == &fused::kByteConvTranspose;
  return args;
}

std::string LayerText(const Node& node, const cuda::GraphByteLayerArgs& args,
                      bool is_depthwise) {
  if (node.op == &fused::kByteLinear) {
    return "Int8 Linear " + std::to_string(args.batch) + " x " +
           std::to_string(args.channels) + " -> " +
           std::to_string(args.outputs);
  }
  return std::string("Int8 ") +
         (is_depthwise      ? "Depthwise "
          : args.transposed ? "ConvTranspose "
                            : "Conv ") +
         DeviceWindowText(args.window, args.batch, args.channels,
                          args.outputs) +
         (args.groups > 1 && !is_depthwise
              ? ", " + std::to_string(args.groups) + " groups"
              : "");
}

}  // namespace

MaybeStep MakeDeviceByteLayer(const Node& node,
                              const DeviceLowering& lowering) {
  const Shape& x = lowering.shape(node.inputs[0]);
  const Shape& y = lowering.shape(node.outputs[0]);
  auto made = LayerArgs(node, x, y);
  if (!made || !lowering.IsByte(node.inputs[0])) return std::nullopt;
  cuda::GraphByteLayerArgs fixed = *made;
  const bool is_depthwise = fixed.groups > 1 &&
                            fixed.groups == fixed.channels &&
                            fixed.groups == fixed.outputs;
  const int64_t taps = int64_t{fixed.window.kernel[0]} *
                       fixed.window.kernel[1] * fixed.window.kernel[2];
  const int64_t inputs = taps * fixed.channels / fixed.groups;
  const bool is_linear = node.op == &fused::kByteLinear;
  const int outputs_axis =
      fixed.transposed ||
              (is_linear && ParamsOf<LinearParams>(node.attrs).weight_kn)
          ? 1
          : 0;
  const auto& integers = lowering.graph.value(node.inputs[1]).integers;
  const auto sums = lowering.byte_sums.Get(*integers, outputs_axis);
  const ByteEpilogue epilogue(node, {lowering.graph, lowering.slot_of},
                              {*sums, integers->scales}, fixed.outputs);
  fixed.zero = static_cast<uint8_t>(epilogue.known_x_zero());
  fixed.row_bytes =
      (inputs + cuda::kPackedUnit - 1) / cuda::kPackedUnit * cuda::kPackedUnit;
  OwnArrays own;
  const LayerEnd end(epilogue, own);
  const Slot in = lowering.slot(node.inputs[0]);
  const Slot out = lowering.slot(node.outputs[0]);
  DeviceStep step;
  step.text = LayerText(node, fixed, is_depthwise) + epilogue.Text();
  step.macs =
      static_cast<double>(fixed.transposed ? x.num_elements()
                                           : y.num_elements()) *
      static_cast<double>(fixed.transposed ? taps * fixed.outputs / fixed.groups
                                           : inputs);
  step.packed =
      PackedBytesOf(node.inputs[1], integers, outputs_axis, taps, is_depthwise);
  for (const size_t i : {fused::kBias, fused::kTable, fused::kMiddleBias}) {
    if (i < node.inputs.size()) step.known.push_back(node.inputs[i]);
  }
  step.own = own.Take();
  step.launch = [=](const cuda::Module& module, cuda::Stream stream,
                    const DeviceSlots& slots) {
    cuda::GraphByteLayerArgs args = fixed;
    args.x = slots.bytes_in(in);
    args.w = reinterpret_cast<const int8_t*>(slots.packed);
    end.SetIn(slots, out, args);
    return is_depthwise ? module.graph_byte_depthwise(stream, args)
                        : module.graph_byte_layer(stream, args);
  };
  return step;
}

MaybeStep MakeDeviceBytePool(const Node& node, const DeviceLowering& lowering) {
  if (!lowering.IsByte(node.inputs[0])) return std::nullopt;
  const auto& params = ParamsOf<PoolParams>(node.attrs);
  const Shape& x = lowering.shape(node.inputs[0]);
  const Shape& y = lowering.shape(node.outputs[0]);
  const auto window = DeviceWindowOf(params.window, x, y);
  if (!window || !FitsInt32(x.back())) return std::nullopt;
  const Slot in = lowering.slot(node.inputs[0]);
  const Slot out = lowering.slot(node.outputs[0]);
  DeviceStep step;
  step.text = (params.is_max ? "Int8 MaxPool " : "Int8 Mean ") +
              DeviceWindowText(*window, x[0], x.back(), y.back());
  if (params.is_max) {
    const cuda::GraphBytePoolArgs fixed = {
        .window = *window,
        .batch = x[0],
        .channels = static_cast<int32_t>(x.back()),
        .x = nullptr,
        .y = nullptr};
    step.launch = [=](const cuda::Module& module, cuda::Stream stream,
                      const DeviceSlots& slots) {
      cuda::GraphBytePoolArgs args = fixed;
      args.x = slots.bytes_in(in);
      args.y = slots.bytes_out(out);
      return module.graph_byte_max_pool(stream, args);
    };
    return step;
  }
  const bool gives_bytes = params.y.given();
  if (!gives_bytes) step.text += " -> f32";
  cuda::GraphByteMeanArgs fixed = {};
  fixed.batch = x[0];
  fixed.pixels = x.Product(1, x.rank() - 1);
  fixed.channels = x.back();
  fixed.x_scale = params.x.scale;
  fixed.x_zero = params.x.zero;
  fixed.y_scale = gives_bytes ? 1.0f / params.y.scale : 0;
  fixed.y_zero = params.y.zero;
  step.launch = [=](const cuda::Module& module, cuda::Stream stream,
                    const DeviceSlots& slots) {
    cuda::GraphByteMeanArgs args = fixed;
    args.x = slots.bytes_in(in);
    if (gives_bytes) {
      args.y = slots.bytes_out(out);
    } else {
      args.y_f32 = slots.floats_out(out);
    }
    return module.graph_byte_mean(stream, args);
  };
  return step;
}

MaybeStep MakeDeviceLookup(const Node& node, const DeviceLowering& lowering) {
  const Tensor* table = lowering.constant(node.inputs[1]);
  if (table == nullptr) return std::nullopt;
  OwnArrays own;
  own.Add(table->data<uint8_t>(), 256);
  const int64_t count = lowering.shape(node.inputs[0]).num_elements();
  const Slot in = lowering.slot(node.inputs[0]);
  const Slot out = lowering.slot(node.outputs[0]);
  DeviceStep step;
  step.text = "Lookup " + std::to_string(count);
  step.known = {node.inputs[1]};
  step.own = own.Take();
  step.launch = [=](const cuda::Module& module, cuda::Stream stream,
                    const DeviceSlots& slots) {
    return module.graph_lookup(stream, {.count = count,
                                        .table = OwnAt<uint8_t>(slots, 0),
                                        .x = slots.bytes_in(in),
                                        .y = slots.bytes_out(out)});
  };
  return step;
}

MaybeStep MakeDeviceQuantize(const Node& node, const DeviceLowering& lowering) {
  const auto scale = ByteScaleOf(lowering.graph, node);
  if (!scale) return std::nullopt;
  const int64_t count = lowering.shape(node.inputs[0]).num_elements();
  const Slot in = lowering.slot(node.inputs[0]);
  const Slot out = lowering.slot(node.outputs[0]);
  DeviceStep step;
  step.text = "Quantize " + std::to_string(count);
  step.known.assign(node.inputs.begin() + 1, node.inputs.end());
  step.launch = [=](const cuda::Module& module, cuda::Stream stream,
                    const DeviceSlots& slots) {
    return module.graph_quantize(stream, {.count = count,
                                          .scale = 1.0f / scale->scale,
                                          .zero = scale->zero,
                                          .x = slots.floats_in(in),
                                          .y = slots.bytes_out(out)});
  };
  return step;
}

MaybeStep MakeDeviceDequantize(const Node& node,
                               const DeviceLowering& lowering) {
  const auto known = ByteScaleOf(lowering.graph, node);
  if (!known && !IsMeasured(node, lowering)) return std::nullopt;
  cuda::GraphDequantizeArgs fixed = {};
  fixed.count = lowering.shape(node.inputs[0]).num_elements();
  Slot scale = kNoSlot, zero = kNoSlot;
  DeviceStep step;
  step.text = "Dequantize " + std::to_string(fixed.count);
  if (known) {
    fixed.scale = known->scale;
    fixed.zero = known->zero;
    step.known.assign(node.inputs.begin() + 1, node.inputs.end());
  } else {
    step.text += " measured";
    scale = lowering.slot(node.inputs[1]);
    zero = lowering.slot(node.inputs[2]);
  }
  const Slot in = lowering.slot(node.inputs[0]);
  const Slot out = lowering.slot(node.outputs[0]);
  step.launch = [=](const cuda::Module& module, cuda::Stream stream,
                    const DeviceSlots& slots) {
    cuda::GraphDequantizeArgs args = fixed;
    args.x_scale = slots.floats_in(scale);
    args.x_zero = slots.bytes_in(zero);
    args.x = slots.bytes_in(in);
    args.y = slots.floats_out(out);
    return module.graph_dequantize(stream, args);
  };
  return step;
}

MaybeStep MakeDeviceMeasure(const Node& node, const DeviceLowering& lowering) {
  if (node.outputs.size() != 3 || !lowering.IsFloat(node.inputs[0]) ||
      std::count(node.outputs.begin(), node.outputs.end(), kNoValue) != 0) {
    return std::nullopt;
  }
  const int64_t count = lowering.shape(node.inputs[0]).num_elements();
  const Slot in = lowering.slot(node.inputs[0]);
  const Slot out = lowering.slot(node.outputs[0]);
  const Slot scale = lowering.slot(node.outputs[1]);
  const Slot zero = lowering.slot(node.outputs[2]);
  DeviceStep step;
  step.text = "Quantize " + std::to_string(count) + " measured";
  step.launch = [=](const cuda::Module& module, cuda::Stream stream,
                    const DeviceSlots& slots) {
    return module.graph_measure(stream, {.count = count,
                                         .x = slots.floats_in(in),
                                         .y = slots.bytes_out(out),
                                         .scale = slots.floats_out(scale),
                                         .zero = slots.bytes_out(zero)});
  };
  return step;
}

}  // namespace millrace::models::graph
