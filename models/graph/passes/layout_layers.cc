// Layers that have a layout of their own, and what of them can be carried.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "models/graph/passes/fused.h"
#include "models/graph/passes/layout_pass.h"
#include "models/graph/passes/windows.h"

namespace millrace::models::graph {

bool LayoutPass::Convolution(const Node& node) {
  const int rank = Rank(node.inputs[0]);
  const ValueType& type = Type(node.inputs[0]);
  if (type.dtype != DType::kF32 || rank < 3 || rank > 5 ||
      Constant(node, 1) == nullptr) {
    return false;
  }
  const NodeWindow window =
      WindowOf(node, type.shape, Type(node.outputs[0]).shape,
               Type(node.inputs[1]).shape);
  std::vector<ValueId> inputs = {
      lazy_.As(In(node.inputs[0]), ChannelsLast(rank)),
      PlainIn(node.inputs[1])};
  inputs.push_back(node.inputs.size() > 2 ? PlainIn(node.inputs[2]) : kNoValue);
  ConvParams params;
  params.window = window;
  params.groups = node.attrs.Int("group", 1);
  Emit(node, rank == 5 ? fused::kVolumeConv : fused::kConv, std::move(inputs),
       FusedAttrs(std::move(params)), ChannelsFirst(rank));
  return true;
}

// Every phase of the strides is a convolution of its own, which needs a tap at
// least and padding that is not more than its kernel; others, and groups that
// would fill little of a panel, are left to the plain function.
bool LayoutPass::TransposedConvolution(const Node& node) {
  const int rank = Rank(node.inputs[0]);
  const ValueType& x = Type(node.inputs[0]);
  const Tensor* weight = Constant(node, 1);
  const int64_t groups = node.attrs.Int("group", 1);
  constexpr int64_t kLeastOfGroup = 8;
  if (x.dtype != DType::kF32 || rank < 3 || rank > 4 || weight == nullptr ||
      (groups > 1 && weight->shape()[1] < kLeastOfGroup)) {
    return false;
  }
  const Shape& y = Type(node.outputs[0]).shape;
  const NodeWindow window = WindowOf(node, x.shape, y, weight->shape());
  for (int i = 2; i < rank; ++i) {
    const auto axis = static_cast<size_t>(i - 2);
    const int64_t kernel = weight->shape()[i];
    if (window.dilations[axis] != 1 || kernel < window.strides[axis] ||
        window.pads[axis] < 0 ||
        window.pads[axis] > kernel - window.strides[axis]) {
      return false;
    }
  }
  std::vector<ValueId> inputs = {
      lazy_.As(In(node.inputs[0]), ChannelsLast(rank)),
      PlainIn(node.inputs[1])};
  inputs.push_back(node.inputs.size() > 2 ? PlainIn(node.inputs[2]) : kNoValue);
  ConvParams params;
  params.window = window;
  params.groups = groups;
  Emit(node, fused::kConvTranspose, std::move(inputs),
       FusedAttrs(std::move(params)), ChannelsFirst(rank));
  return true;
}

bool LayoutPass::GroupNorm(const Node& node) {
  const int rank = Rank(node.inputs[0]);
  const ValueType& type = Type(node.inputs[0]);
  if (type.dtype != DType::kF32 || rank < 3) return false;
  std::vector<ValueId> inputs = {
      lazy_.As(In(node.inputs[0]), ChannelsLast(rank))};
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (node.inputs[i] != kNoValue &&
        Type(node.inputs[i]).dtype != DType::kF32) {
      return false;
    }
    inputs.push_back(PlainIn(node.inputs[i]));
  }
  const bool one_channel_each = node.Is("InstanceNormalization");
  Emit(node, fused::kGroupNorm, std::move(inputs),
       FusedAttrs(GroupNormParams{
           .num_groups = one_channel_each ? type.shape[1]
                                          : node.attrs.Int("num_groups", 1),
           .epsilon = node.attrs.Float("epsilon", 1e-5)}),
       ChannelsFirst(rank));
  return true;
}

// Of images; what decides the sizes is known.
bool LayoutPass::Resize(const Node& node) {
  const ValueType& x = Type(node.inputs[0]);
  const Shape& y = Type(node.outputs[0]).shape;
  if (x.dtype != DType::kF32 || x.shape.rank() != 4 || y[0] != x.shape[0] ||
      y[1] != x.shape[1] || y.num_elements() == 0) {
    return false;
  }
  std::vector<ValueId> inputs = {lazy_.As(In(node.inputs[0]), ChannelsLast(4))};
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (node.inputs[i] != kNoValue && Constant(node, i) == nullptr) {
      return false;
    }
    inputs.push_back(PlainIn(node.inputs[i]));
  }
  Attrs attrs = node.attrs;
  attrs.SetFused(
      std::make_shared<const FusedParams>(FusedParams{.of = ResizeParams{}}));
  Emit(node, fused::kResize, std::move(inputs), std::move(attrs),
       ChannelsFirst(4));
  return true;
}

bool LayoutPass::Pool(const Node& node) {
  const int rank = Rank(node.inputs[0]);
  const ValueType& type = Type(node.inputs[0]);
  if (type.dtype != DType::kF32 || rank < 3 || rank > 4) return false;
  if (node.attrs.Int("divisor_override", 0) != 0) return false;
  PoolParams params;
  if (node.Is("GlobalAveragePool") || node.Is("GlobalMaxPool")) {
    NodeWindow& whole = params.window;
    for (int i = 2; i < rank; ++i) {
      whole.kernel.push_back(type.shape[i]);
      whole.strides.push_back(1);
      whole.dilations.push_back(1);
    }
    whole.pads.assign(2 * whole.kernel.size(), 0);
  } else {
    Shape weight = {1, 1};
    for (const int64_t size : node.attrs.Ints("kernel_shape")) {
      weight.Append(size);
    }
    params.window =
        WindowOf(node, type.shape, Type(node.outputs[0]).shape, weight);
    params.count_include_pad = node.attrs.Int("count_include_pad", 0) != 0;
  }
  params.is_max = node.Is("MaxPool") || node.Is("GlobalMaxPool");
  Emit(node, fused::kPool, {lazy_.As(In(node.inputs[0]), ChannelsLast(rank))},
       FusedAttrs(std::move(params)), ChannelsFirst(rank));
  return true;
}

// A product with a constant matrix, [n, k] or [k, n].
bool LayoutPass::Linear(const Node& node, bool weight_kn) {
  const Lazy x = In(node.inputs[0]);
  const Tensor* weight = Constant(node, 1);
  if (Type(node.inputs[0]).dtype != DType::kF32 || weight == nullptr ||
      weight->shape().rank() != 2 || x.perm.empty()) {
    return false;
  }
  const bool carried = LastIsLast(x);
  std::vector<ValueId> inputs = {carried ? x.base : lazy_.Plain(x),
                                 PlainIn(node.inputs[1])};
  if (node.inputs.size() > 2) inputs.push_back(PlainIn(node.inputs[2]));
  LinearParams params;
  params.weight_kn = weight_kn;
  Emit(node, fused::kLinear, std::move(inputs), FusedAttrs(params),
       carried ? x.perm : Straight(static_cast<int>(x.perm.size())));
  return true;
}

// alpha * x * w + beta * bias, where it is a linear layer.
bool LayoutPass::Gemm(const Node& node) {
  const Attrs& attrs = node.attrs;
  const bool has_bias = node.inputs.size() > 2 && node.inputs[2] != kNoValue;
  const int64_t outputs = Type(node.outputs[0]).shape[1];
  if (attrs.Int("transA", 0) != 0 || attrs.Float("alpha", 1) != 1) {
    return false;
  }
  if (has_bias) {
    const Tensor* bias = Constant(node, 2);
    if (attrs.Float("beta", 1) != 1 || bias == nullptr ||
        bias->num_elements() != outputs || bias->shape().back() != outputs) {
      return false;
    }
  }
  return Linear(node, attrs.Int("transB", 0) == 0);
}

bool LayoutPass::Product(const Node& node) {
  Lazy views[2];
  for (size_t i = 0; i < 2; ++i) {
    const ValueType& type = Type(node.inputs[i]);
    if (type.dtype != DType::kF32 || type.shape.rank() < 2 ||
        type.shape.num_elements() == 0) {
      return false;
    }
    Lazy& x = views[i] = In(node.inputs[i]);
    const auto last = static_cast<int>(x.perm.size()) - 1;
    // Rows of A lie together, of B rows or columns do.
    const bool columns = i == 1 && x.perm[x.perm.size() - 2] == last;
    if (x.perm.back() != last && !columns) {
      x = {lazy_.Plain(x), Straight(last + 1)};
    }
  }
  const auto ints = [](const Order& order) {
    return std::vector<int64_t>(order.begin(), order.end());
  };
  const Order straight = Straight(Rank(node.outputs[0]));
  MatMulParams params;
  params.a_perm = ints(views[0].perm);
  params.b_perm = ints(views[1].perm);
  params.y_perm = ints(straight);
  Emit(node, fused::kMatMul, {views[0].base, views[1].base},
       FusedAttrs(std::move(params)), straight);
  return true;
}

// (x - mean) * s + beta with s = gamma / sqrt(var + eps), channels last.
bool LayoutPass::BatchNorm(const Node& node) {
  const int rank = Rank(node.inputs[0]);
  const ValueType& type = Type(node.inputs[0]);
  if (type.dtype != DType::kF32 || rank < 2 ||
      node.attrs.Int("training_mode", 0) != 0) {
    return false;
  }
  const int64_t channels = type.shape[1];
  const float* given[4];
  for (size_t i = 0; i < 4; ++i) {
    const Tensor* tensor = Constant(node, i + 1);
    if (tensor == nullptr || tensor->dtype() != DType::kF32) return false;
    given[i] = tensor->data<float>();
  }
  const double epsilon = node.attrs.Float("epsilon", 1e-5);
  Tensor scale = Tensor::Make(DType::kF32, {channels});
  Tensor shift = Tensor::Make(DType::kF32, {channels});
  for (int64_t c = 0; c < channels; ++c) {
    const double s = given[0][c] / std::sqrt(given[3][c] + epsilon);
    scale.data<float>()[c] = static_cast<float>(s);
    shift.data<float>()[c] = static_cast<float>(given[1][c] - given[2][c] * s);
  }
  const ValueId x = lazy_.As(In(node.inputs[0]), ChannelsLast(rank));
  const ValueType moved = *made_.value(x).type;
  const ValueId scaled =
      lazy_.Add(node.name, "Mul",
                {x, made_.AddConstant(node.name, std::move(scale))}, {}, moved);
  Emit(node, *FindOp("Add"),
       {scaled, made_.AddConstant(node.name, std::move(shift))}, {},
       ChannelsFirst(rank));
  return true;
}

bool LayoutPass::LayerNorm(const Node& node) {
  const Lazy x = In(node.inputs[0]);
  const int64_t axis = node.attrs.Int("axis", -1);
  const bool last =
      axis == -1 || axis == static_cast<int64_t>(x.perm.size()) - 1;
  if (!last || !LastIsLast(x)) return false;
  std::vector<ValueId> inputs = {x.base};
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    inputs.push_back(PlainIn(node.inputs[i]));
  }
  Emit(node, std::move(inputs), node.attrs, x.perm);
  return true;
}

// Its axis becomes the last one of the base, where rows lie together.
bool LayoutPass::Softmax(const Node& node) {
  const Lazy x = In(node.inputs[0]);
  const auto rank = static_cast<int64_t>(x.perm.size());
  if (rank == 0) return false;
  const int64_t axis = node.attrs.Int("axis", -1);
  Attrs attrs = node.attrs;
  const int64_t base_axis = BaseAxis(x, axis);
  if (base_axis == rank - 1 || lazy_.dtype(x) != DType::kF32) {
    attrs.Set("axis", base_axis);
    Emit(node, {x.base}, std::move(attrs), x.perm);
    return true;
  }
  Order order(x.perm.size());  // of view axes, as they stand in the base
  for (size_t i = 0; i < order.size(); ++i) {
    order[static_cast<size_t>(x.perm[i])] = static_cast<int>(i);
  }
  std::rotate(order.begin() + base_axis, order.begin() + base_axis + 1,
              order.end());
  Order perm(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    perm[static_cast<size_t>(order[i])] = static_cast<int>(i);
  }
  attrs.Set("axis", int64_t{-1});
  Emit(node, {lazy_.As(x, order)}, std::move(attrs), perm);
  return true;
}

// [b, h, t, d] operands are read as [b, t, h, d]: how projections leave them.
bool LayoutPass::Attention(const Node& node) {
  const ValueType& q = Type(node.inputs[0]);
  if (q.shape.rank() != 4 || q.dtype != DType::kF32 || node.inputs.size() > 4 ||
      node.attrs.Float("softcap", 0) != 0 ||
      node.attrs.Int("left_window_size", -1) >= 0 ||
      node.attrs.Int("right_window_size", -1) >= 0) {
    return false;
  }
  ValueId mask = kNoValue;
  if (node.inputs.size() > 3 && node.inputs[3] != kNoValue) {
    const ValueType& type = Type(node.inputs[3]);
    const int64_t keys = Type(node.inputs[1]).shape[2];
    if (type.shape.rank() == 0 || type.shape.back() != keys) return false;
    mask = PlainIn(node.inputs[3]);
    if (type.dtype == DType::kBool) {
      constexpr float kHidden = -std::numeric_limits<float>::infinity();
      mask = lazy_.Add(node.name, "Where",
                       {mask, made_.AddConstant("seen", Tensor::Scalar(0.0f)),
                        made_.AddConstant("hidden", Tensor::Scalar(kHidden))},
                       {}, {DType::kF32, type.shape});
    } else if (type.dtype != DType::kF32) {
      return false;
    }
  }
  const Order heads_inside = {0, 2, 1, 3};
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < 3; ++i) {
    inputs.push_back(lazy_.As(In(node.inputs[i]), heads_inside));
  }
  inputs.push_back(mask);
  AttentionParams params;
  if (node.attrs.Has("scale")) params.scale = node.attrs.Float("scale", 1);
  params.is_causal = node.attrs.Int("is_causal", 0) != 0;
  params.zero_masked = node.attrs.Int("zero_masked", 1) != 0;
  Emit(node, fused::kAttention, std::move(inputs),
       FusedAttrs(std::move(params)), heads_inside);
  return true;
}

}  // namespace millrace::models::graph
