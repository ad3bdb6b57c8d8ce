// Linear layers, products, attention and pools on a GPU. Weights stay as the
// graph has them: kernels read them by strides.
#include <algorithm>
#include <cmath>
#include <string>
#include <variant>

#include "models/graph/cuda/device_step.h"
#include "models/graph/cuda/device_window.h"
#include "models/graph/cuda/layer_parts.h"
#include "models/graph/cuda/pack_factors.h"
#include "models/graph/fused_params.h"
#include "models/graph/ops/broadcast.h"
#include "models/graph/passes/fused.h"

namespace millrace::models::graph {
namespace {

using cuda::GraphWindow;

// A value as a product sees its axes.
struct View {
  Shape sizes;
  Shape strides;

  View(const Shape& shape, const std::vector<int64_t>& perm) {
    const Shape own = shape.Strides();
    for (const int64_t axis : perm) {
      sizes.Append(shape[static_cast<int>(axis)]);
      strides.Append(own[static_cast<int>(axis)]);
    }
  }
  int64_t size(int from_end) const { return sizes[sizes.rank() - from_end]; }
  int64_t stride(int from_end) const {
    return strides[strides.rank() - from_end];
  }
  // Of an axis of the result; 0 where the value repeats along it.
  int64_t OfStack(int axis, int rank) const {
    const int own = axis - (rank - sizes.rank());
    return own < 0 || sizes[own] == 1 ? 0 : strides[own];
  }
};

// Rows behind the last are read, so the operand must lie in the plan's arena.
const BlasProduct* BlasFor(const Node& node, const DeviceLowering& lowering,
                           const cuda::ProductArgs& args) {
  const ValueId rows = node.inputs[0];
  if (lowering.blas == nullptr || lowering.formats.empty() ||
      lowering.constant(rows) != nullptr) {
    return nullptr;
  }
  const auto format =
      lowering.formats[static_cast<size_t>(lowering.slot(rows))];
  const std::optional<BlasShape> shape = BlasLayers::ShapeOf(args, format);
  return shape ? lowering.blas->Choose(*shape) : nullptr;
}

DeviceStep ProductStep(const Node& node, const DeviceLowering& lowering,
                       const cuda::ProductArgs& sizes,
                       const std::string& text) {
  cuda::ProductArgs fixed = sizes;
  fixed.precision = lowering.precision;
  const LayerEnd end(node, lowering);
  const Slot a = lowering.slot(node.inputs[0]);
  const Slot b = lowering.slot(node.inputs[1]);
  const Slot y = lowering.slot(node.outputs[0]);
  DeviceStep step;
  // A stack that has one B, known now.
  const bool is_known =
      lowering.constant(node.inputs[1]) != nullptr &&
      std::all_of(fixed.b_strides, fixed.b_strides + fixed.rank,
                  [](int64_t stride) { return stride == 0; });
  const BlasProduct* blas = is_known ? BlasFor(node, lowering, fixed) : nullptr;
  const bool packs =
      is_known &&
      (fixed.precision != cuda::GraphPrecision::kF32 || blas != nullptr);
  const int64_t pieces =
      blas != nullptr ? 1 : cuda::PiecesOf(fixed.precision, fixed.k, fixed.n);
  const int64_t partial_sums =
      cuda::PartialSums(pieces, fixed.m, fixed.n, fixed.count);
  step.scratch_bytes = partial_sums * BytesOf(cuda::GraphFormat::kF32);
  step.text = text + std::to_string(fixed.m) + " x " + std::to_string(fixed.k) +
              " -> " + std::to_string(fixed.n) +
              PiecesText(pieces, partial_sums) + end.Text() +
              PrecisionText(fixed.precision);
  if (blas != nullptr) {
    step.library = Library::kCublasLt;
    step.failed = [layers = lowering.blas](int error) {
      return layers->Failed(error);
    };
    step.scratch_bytes = BlasLayers::ScratchBytes(*blas);
    step.reads_behind = BlasLayers::ReadsBehind(*blas);
    step.text += " by cuBLASLt";
  }
  if (packs) {
    step.packed = FactorsOf(lowering.graph, node.inputs[1], fixed.precision,
                            {.outputs = fixed.n,
                             .taps = 1,
                             .channels = fixed.k,
                             .output_stride = fixed.b_n,
                             .tap_stride = 0,
                             .channel_stride = fixed.b_k});
    fixed.packed_b.row_bytes = PackedRowBytes(fixed.precision, fixed.k);
  }
  step.macs = static_cast<double>(fixed.count * fixed.m) *
              static_cast<double>(fixed.n * fixed.k);
  step.launch = [=, layers = lowering.blas](const cuda::Module& module,
                                            cuda::Stream stream,
                                            const DeviceSlots& slots) {
    cuda::ProductArgs args = fixed;
    args.a = slots.in(a);
    args.b = slots.in(b);
    args.packed_b.data = slots.packed;
    args.y = slots.out(y);
    args.epilogue = end.At(slots);
    if (blas != nullptr) {
      return layers->Multiply(*blas, args, module, stream, slots.scratch);
    }
    if (partial_sums > 0) {
      args.partial = reinterpret_cast<float*>(slots.scratch);
    }
    return module.graph_product(stream, args);
  };
  return step;
}

struct Heads {
  int64_t tokens;
  int64_t heads;
  int64_t offset;  // values
  cuda::HeadsAt at;
};
Heads HeadsOf(const Node& node, const DeviceLowering& lowering, size_t i) {
  const auto& views = ParamsOf<AttentionParams>(node.attrs).views;
  if (views) {
    const AttentionOperand& view = (*views)[i];
    return {view.tokens,
            view.heads,
            view.offset,
            {view.batch_stride, view.stride, view.size}};
  }
  const Shape& x = lowering.shape(node.inputs[i]);
  return {x[1], x[2], 0, {x[1] * x[2] * x[3], x[2] * x[3], x[3]}};
}

}  // namespace

MaybeStep MakeDeviceLinear(const Node& node, const DeviceLowering& lowering) {
  if (!AllFloats(node, lowering)) return std::nullopt;
  const int64_t n = lowering.shape(node.outputs[0]).back();
  const int64_t k = lowering.shape(node.inputs[0]).back();
  const bool kn = ParamsOf<LinearParams>(node.attrs).weight_kn;
  cuda::ProductArgs args = {};
  args.m = lowering.shape(node.outputs[0]).num_elements() / n;
  args.n = n;
  args.k = k;
  args.a_row = k;
  args.a_k = 1;
  args.b_k = kn ? n : 1;
  args.b_n = kn ? 1 : k;
  args.y_row = n;
  args.count = 1;
  return ProductStep(node, lowering, args, "Linear ");
}

MaybeStep MakeDeviceMatMul(const Node& node, const DeviceLowering& lowering) {
  if (!AllFloats(node, lowering)) return std::nullopt;
  const auto& params = ParamsOf<MatMulParams>(node.attrs);
  const View a(lowering.shape(node.inputs[0]), params.a_perm);
  const View b(lowering.shape(node.inputs[1]), params.b_perm);
  const View y(lowering.shape(node.outputs[0]), params.y_perm);
  if (y.stride(1) != 1) return std::nullopt;
  cuda::ProductArgs args = {};
  args.m = y.size(2);
  args.n = y.size(1);
  args.k = a.size(1);
  args.a_row = a.stride(2);
  args.a_k = a.stride(1);
  args.b_k = b.stride(2);
  args.b_n = b.stride(1);
  args.y_row = y.stride(2);
  args.count = 1;
  const int rank = y.sizes.rank();
  for (int i = 0; i < rank - 2; ++i) {
    args.sizes[i] = y.sizes[i];
    args.a_strides[i] = a.OfStack(i, rank);
    args.b_strides[i] = b.OfStack(i, rank);
    args.y_strides[i] = y.strides[i];
    args.count *= y.sizes[i];
  }
  args.rank = rank - 2;
  return ProductStep(node, lowering, args,
                     "MatMul " + std::to_string(args.count) + " of ");
}

MaybeStep MakeDevicePool(const Node& node, const DeviceLowering& lowering) {
  if (!AllFloats(node, lowering)) return std::nullopt;
  const auto& params = ParamsOf<PoolParams>(node.attrs);
  const Shape& x = lowering.shape(node.inputs[0]);
  const Shape& y = lowering.shape(node.outputs[0]);
  const std::optional<GraphWindow> window = DeviceWindowOf(params.window, x, y);
  if (!window || !FitsInt32(x.back())) return std::nullopt;
  cuda::GraphPoolArgs fixed = {};
  fixed.window = *window;
  fixed.batch = x[0];
  fixed.channels = static_cast<int32_t>(x.back());
  fixed.kind = params.is_max              ? cuda::PoolOf::kMax
               : params.count_include_pad ? cuda::PoolOf::kMeanPadded
                                          : cuda::PoolOf::kMean;
  const Slot in = lowering.slot(node.inputs[0]);
  const Slot out = lowering.slot(node.outputs[0]);
  DeviceStep step;
  step.text = (params.is_max ? "MaxPool " : "AveragePool ") +
              DeviceWindowText(*window, x[0], x.back(), y.back());
  step.launch = [=](const cuda::Module& module, cuda::Stream stream,
                    const DeviceSlots& slots) {
    cuda::GraphPoolArgs args = fixed;
    args.x = slots.in(in);
    args.y = slots.out(out);
    return module.graph_pool(stream, args);
  };
  return step;
}

MaybeStep MakeDeviceAttention(const Node& node,
                              const DeviceLowering& lowering) {
  if (!AllFloats(node, lowering)) return std::nullopt;
  const auto& params = ParamsOf<AttentionParams>(node.attrs);
  const Heads q = HeadsOf(node, lowering, 0);
  const Heads k = HeadsOf(node, lowering, 1);
  const Heads v = HeadsOf(node, lowering, 2);
  if (q.at.size > cuda::kMostHeadSize || v.at.size > cuda::kMostHeadSize) {
    return std::nullopt;
  }
  const Shape& y = lowering.shape(node.outputs[0]);
  const int64_t floats = y[2] * y[3];
  cuda::GraphAttentionArgs fixed = {};
  fixed.q_at = q.at;
  fixed.k_at = k.at;
  fixed.v_at = v.at;
  fixed.out_at = params.swapped_out
                     ? cuda::HeadsAt{floats, y[1] * floats, y[3]}
                     : cuda::HeadsAt{y[1] * floats, floats, y[3]};
  fixed.items = params.swapped_out ? y[1] : y[0];
  fixed.heads = q.heads;
  fixed.key_heads = k.heads;
  fixed.queries = q.tokens;
  fixed.keys = k.tokens;
  fixed.scale = static_cast<float>(
      params.scale.value_or(1 / std::sqrt(static_cast<double>(q.at.size))));
  fixed.precision = q.at.size <= cuda::kMostTensorHeadSize &&
                            v.at.size <= cuda::kMostTensorHeadSize
                        ? lowering.precision
                        : cuda::GraphPrecision::kF32;
  fixed.causal = params.is_causal;
  fixed.zero_if_hidden = params.zero_masked;
  fixed.mask_items = 1;
  Slot mask = kNoSlot;
  if (node.inputs.size() > 3 && node.inputs[3] != kNoValue) {
    mask = lowering.slot(node.inputs[3]);
    Shape shape = lowering.shape(node.inputs[3]);
    while (shape.rank() < 4) shape.Insert(0, 1);
    fixed.mask_items = shape[0];
    const Shape strides = BroadcastStrides(
        shape, Shape{shape[0], fixed.heads, fixed.queries, fixed.keys});
    for (int i = 0; i < 4; ++i) fixed.mask_strides[i] = strides[i];
  }
  const Slot qs = lowering.slot(node.inputs[0]);
  const Slot ks = lowering.slot(node.inputs[1]);
  const Slot vs = lowering.slot(node.inputs[2]);
  const Slot out = lowering.slot(node.outputs[0]);
  DeviceStep step;
  step.text = "Attention " + std::to_string(fixed.items) + " x " +
              std::to_string(q.heads) + " heads x " + std::to_string(q.tokens) +
              " of " + std::to_string(k.tokens) + " keys x " +
              std::to_string(q.at.size) + (params.is_causal ? ", causal" : "") +
              (mask != kNoSlot ? ", masked" : "") +
              PrecisionText(fixed.precision);
  step.macs = static_cast<double>(fixed.items * q.heads * q.tokens) *
              static_cast<double>(k.tokens * (q.at.size + v.at.size));
  step.launch = [=](const cuda::Module& module, cuda::Stream stream,
                    const DeviceSlots& slots) {
    cuda::GraphAttentionArgs args = fixed;
    args.q = slots.in(qs) + q.offset;
    args.k = slots.in(ks) + k.offset;
    args.v = slots.in(vs) + v.offset;
    args.mask = slots.floats_in(mask);
    args.out = slots.out(out);
    return module.graph_attention(stream, args);
  };
  return step;
}

}  // namespace millrace::models::graph
