#include "models/graph/passes/layout.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "models/graph/op.h"
#include "models/graph/passes/elementwise.h"
#include "models/graph/passes/fused.h"
#include "models/graph/passes/lazy.h"
#include "models/graph/passes/windows.h"

namespace millrace::models::graph {
namespace {

// [n, c, spatial…] seen as [n, spatial…, c], and the way back.
Order ChannelsLast(int rank) {
  Order order = {0};
  for (int i = 2; i < rank; ++i) order.push_back(i);
  order.push_back(1);
  return order;
}
Order ChannelsFirst(int rank) {
  Order order = {0, rank - 1};
  for (int i = 1; i < rank - 1; ++i) order.push_back(i);
  return order;
}
class LayoutPass {
 public:
  explicit LayoutPass(const Graph& from)
      : from_(from), lazy_(made_), views_(from.values.size()) {
    made_.name = from.name;
    made_.symbols = from.symbols;
  }

  StatusOr<Graph> Run() {
    for (const Port& port : from_.inputs) {
      const ValueId id = made_.AddInput(port.name, port.dtype, port.dims);
      made_.inputs.back().rank_known = port.rank_known;
      made_.value(id).type = from_.value(port.value).type;
      View(port.value) = {id, Straight(Rank(port.value))};
    }
    for (const Node& node : from_.nodes) {
      if (!Carried(node)) Copied(node);
    }
    for (const Port& port : from_.outputs) {
      made_.outputs.emplace_back(port).value = lazy_.Plain(In(port.value));
    }
    return std::move(made_);
  }

 private:
  Lazy& View(ValueId id) { return views_[static_cast<size_t>(id)]; }
  const ValueType& Type(ValueId id) const { return *from_.value(id).type; }
  int Rank(ValueId id) const { return Type(id).shape.rank(); }

  const Lazy& In(ValueId id) {
    Lazy& view = View(id);
    if (view.base == kNoValue) {
      view.base = made_.AddValue(from_.value(id).name);
      made_.value(view.base) = from_.value(id);
      view.perm = Straight(Rank(id));
    }
    return view;
  }
  ValueId PlainIn(ValueId id) {
    return id == kNoValue ? kNoValue : lazy_.Plain(In(id));
  }
  const Tensor* Constant(const Node& node, size_t i) const {
    return i < node.inputs.size() && node.inputs[i] != kNoValue
               ? from_.value(node.inputs[i]).constant.get()
               : nullptr;
  }

  // The node as it is, on operands as they are written.
  void Copied(const Node& node) {
    Node copy = node;
    for (ValueId& id : copy.inputs) id = PlainIn(id);
    for (ValueId& id : copy.outputs) {
      const ValueId made = made_.AddValue(from_.value(id).name);
      made_.value(made).type = Type(id);
      View(id) = {made, Straight(Rank(id))};
      id = made;
    }
    made_.nodes.push_back(std::move(copy));
  }

  // Makes the node in whatever order its operands come; false: it cannot.
  bool Carried(const Node& node) {
    if (node.outputs.size() != 1) return node.Is("Split") && Split(node);
    const ValueId y = node.outputs[0];
    if (node.Is("Transpose")) return Transpose(node);
    if (node.Is("Reshape") || node.Is("Flatten") || node.Is("Squeeze") ||
        node.Is("Unsqueeze")) {
      View(y) = lazy_.Reshaped(In(node.inputs[0]), Type(y).shape);
      return true;
    }
    if (IsElementwiseUnary(node.op->name)) return Unary(node);
    if (IsElementwiseBroadcast(node.op->name)) return Elementwise(node);
    if (node.op->name.starts_with("Reduce")) return Reduce(node);
    if (node.Is("Linear")) return Linear(node, false);
    if (node.Is("MatMul")) return Linear(node, true);
    if (node.Is("Gemm")) return Gemm(node);
    if (node.Is("BatchNormalization")) return BatchNorm(node);
    if (node.Is("LayerNormalization")) return LayerNorm(node);
    if (node.Is("Softmax") || node.Is("LogSoftmax")) return Softmax(node);
    if (node.Is("Concat")) return Concat(node);
    if (node.Is("Slice")) return Slice(node);
    return false;
  }

  void Emit(const Node& node, std::vector<ValueId> inputs, Attrs attrs,
            const Order& perm) {
    Emit(node, *node.op, std::move(inputs), std::move(attrs), perm);
  }
  // `perm` is the view's; the base's shape follows from it.
  void Emit(const Node& node, const OpDef& op, std::vector<ValueId> inputs,
            Attrs attrs, const Order& perm) {
    const ValueId y = node.outputs[0];
    ValueType type = Type(y);
    for (int i = 0; i < type.shape.rank(); ++i) {
      type.shape[perm[static_cast<size_t>(i)]] = Type(y).shape[i];
    }
    View(y) = {lazy_.AddFused(node.name, op, std::move(inputs),
                              std::move(attrs), type),
               perm};
  }

  bool Transpose(const Node& node) {
    const Lazy& x = In(node.inputs[0]);
    const std::vector<int64_t>& perm = node.attrs.Ints("perm");
    const auto rank = static_cast<int>(x.perm.size());
    Lazy y{x.base, {}};
    for (int i = 0; i < rank; ++i) {
      const auto axis = perm.empty()
                            ? rank - 1 - i
                            : static_cast<int>(perm[static_cast<size_t>(i)]);
      y.perm.push_back(x.perm[static_cast<size_t>(axis)]);
    }
    View(node.outputs[0]) = y;
    return true;
  }

  bool Unary(const Node& node) {
    const Lazy x = In(node.inputs[0]);
    std::vector<ValueId> inputs = {x.base};
    // The bounds of Clip are scalars.
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      inputs.push_back(PlainIn(node.inputs[i]));
    }
    Emit(node, std::move(inputs), node.attrs, x.perm);
    return true;
  }

  bool Elementwise(const Node& node) {
    const Shape& out = Type(node.outputs[0]).shape;
    // The order of the largest operand that is not straight.
    Order perm = Straight(out.rank());
    int64_t most = 0;
    for (const ValueId id : node.inputs) {
      const Lazy& x = In(id);
      const int64_t count = Type(id).shape.num_elements();
      if (static_cast<int>(x.perm.size()) == out.rank() && count > most &&
          !IsStraight(x.perm)) {
        perm = x.perm;
        most = count;
      }
    }
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) {
      inputs.push_back(InOrder(id, perm, out.rank()));
    }
    Emit(node, std::move(inputs), node.attrs, perm);
    return true;
  }

  // Operand `id`, broadcast to rank, with the axes of a base of this order.
  ValueId InOrder(ValueId id, const Order& perm, int rank) {
    Lazy x = In(id);
    if (IsStraight(perm) && IsStraight(x.perm)) return x.base;
    if (Type(id).shape.num_elements() == 1) {
      return IsStraight(x.perm) ? x.base : lazy_.Plain(x);
    }
    if (static_cast<int>(x.perm.size()) < rank) {
      Shape wide = Type(id).shape;
      while (wide.rank() < rank) wide.Insert(0, 1);
      x = lazy_.Reshaped(x, wide);
    }
    // Base axis b of the result is view axis order[b].
    Order order(perm.size());
    for (size_t i = 0; i < perm.size(); ++i) {
      order[static_cast<size_t>(perm[i])] = static_cast<int>(i);
    }
    return lazy_.As(x, order);
  }

  bool Reduce(const Node& node) {
    const Lazy x = In(node.inputs[0]);
    if (IsStraight(x.perm)) return false;
    const Tensor* given = Constant(node, 1);
    if (given == nullptr) return false;
    const auto rank = static_cast<int>(x.perm.size());
    std::vector<int64_t> axes;
    std::vector<bool> gone(x.perm.size());
    for (int64_t i = 0; i < given->num_elements(); ++i) {
      const int64_t axis = given->data<int64_t>()[i];
      const auto view = static_cast<size_t>(axis < 0 ? axis + rank : axis);
      axes.push_back(x.perm[view]);
      gone[view] = true;
    }
    if (axes.empty()) return false;
    std::sort(axes.begin(), axes.end());
    Order perm;
    if (node.attrs.Int("keepdims", 1) != 0) {
      perm = x.perm;
    } else {
      for (size_t i = 0; i < x.perm.size(); ++i) {
        if (gone[i]) continue;
        const auto before =
            std::lower_bound(axes.begin(), axes.end(), x.perm[i]) -
            axes.begin();
        perm.push_back(x.perm[i] - static_cast<int>(before));
      }
    }
    Emit(node, {x.base, lazy_.Ints(axes)}, node.attrs, perm);
    return true;
  }

  bool Convolution(const Node& node) {
    const int rank = Rank(node.inputs[0]);
    const ValueType& type = Type(node.inputs[0]);
    if (type.dtype != DType::kF32 || rank < 3 || rank > 4 ||
        Constant(node, 1) == nullptr) {
      return false;
    }
    const bool transposed = node.Is("ConvTranspose");
    if (transposed && node.attrs.Int("group", 1) != 1) return false;
    const Window window =
        WindowOf(node, type.shape, Type(node.outputs[0]).shape,
                 Type(node.inputs[1]).shape);
    std::vector<ValueId> inputs = {
        lazy_.As(In(node.inputs[0]), ChannelsLast(rank)),
        PlainIn(node.inputs[1])};
    inputs.push_back(node.inputs.size() > 2 ? PlainIn(node.inputs[2])
                                            : kNoValue);
    Attrs attrs = WindowAttrs(window);
    attrs.Set("group", node.attrs.Int("group", 1));
    Emit(node, transposed ? fused::kConvTranspose : fused::kConv,
         std::move(inputs), std::move(attrs), ChannelsFirst(rank));
    return true;
  }

  bool Pool(const Node& node) {
    const int rank = Rank(node.inputs[0]);
    const ValueType& type = Type(node.inputs[0]);
    if (type.dtype != DType::kF32 || rank < 3 || rank > 4) return false;
    Attrs attrs;
    if (node.Is("GlobalAveragePool") || node.Is("GlobalMaxPool")) {
      Window whole;
      for (int i = 2; i < rank; ++i) {
        whole.kernel.push_back(type.shape[i]);
        whole.strides.push_back(1);
        whole.dilations.push_back(1);
      }
      whole.pads.assign(2 * whole.kernel.size(), 0);
      attrs = WindowAttrs(whole);
    } else {
      Shape weight = {1, 1};
      for (const int64_t size : node.attrs.Ints("kernel_shape")) {
        weight.Append(size);
      }
      attrs = WindowAttrs(
          WindowOf(node, type.shape, Type(node.outputs[0]).shape, weight));
      attrs.Set("count_include_pad", node.attrs.Int("count_include_pad", 0));
    }
    const bool max = node.Is("MaxPool") || node.Is("GlobalMaxPool");
    attrs.Set("kind", std::string(max ? "max" : "average"));
    Emit(node, fused::kPool, {lazy_.As(In(node.inputs[0]), ChannelsLast(rank))},
         std::move(attrs), ChannelsFirst(rank));
    return true;
  }

  // The last axis of the view stands last in the base, too.
  static bool LastIsLast(const Lazy& x) {
    return !x.perm.empty() &&
           x.perm.back() == static_cast<int>(x.perm.size()) - 1;
  }

  // A product with a constant matrix, [n, k] or [k, n].
  bool Linear(const Node& node, bool weight_kn) {
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
    Emit(node, fused::kLinear, std::move(inputs),
         {{"weight_kn", int64_t{weight_kn}}},
         carried ? x.perm : Straight(static_cast<int>(x.perm.size())));
    return true;
  }

  // alpha * x * w + beta * bias, where it is a linear layer.
  bool Gemm(const Node& node) {
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

  // (x - mean) * s + beta with s = gamma / sqrt(var + eps), channels last.
  bool BatchNorm(const Node& node) {
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
      shift.data<float>()[c] =
          static_cast<float>(given[1][c] - given[2][c] * s);
    }
    const ValueId x = lazy_.As(In(node.inputs[0]), ChannelsLast(rank));
    const ValueType moved = *made_.value(x).type;
    const ValueId scaled = lazy_.Add(
        node.name, "Mul", {x, made_.AddConstant(node.name, std::move(scale))},
        {}, moved);
    Emit(node, *FindOp("Add"),
         {scaled, made_.AddConstant(node.name, std::move(shift))}, {},
         ChannelsFirst(rank));
    return true;
  }

  bool LayerNorm(const Node& node) {
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

  bool Softmax(const Node& node) {
    const Lazy x = In(node.inputs[0]);
    const auto rank = static_cast<int64_t>(x.perm.size());
    if (rank == 0) return false;
    const int64_t axis = node.attrs.Int("axis", -1);
    Attrs attrs = node.attrs;
    attrs.Set(
        "axis",
        int64_t{x.perm[static_cast<size_t>(axis < 0 ? axis + rank : axis)]});
    Emit(node, {x.base}, std::move(attrs), x.perm);
    return true;
  }

  bool Concat(const Node& node) {
    Order perm = Straight(Rank(node.outputs[0]));
    for (const ValueId id : node.inputs) {
      if (!IsStraight(In(id).perm)) {
        perm = In(id).perm;
        break;
      }
    }
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) {
      inputs.push_back(InOrder(id, perm, Rank(id)));
    }
    const int64_t axis = node.attrs.Int("axis", 0);
    Attrs attrs = node.attrs;
    attrs.Set("axis", int64_t{perm[static_cast<size_t>(
                          axis < 0 ? axis + Rank(node.outputs[0]) : axis)]});
    Emit(node, std::move(inputs), std::move(attrs), perm);
    return true;
  }

  bool Slice(const Node& node) {
    const Lazy x = In(node.inputs[0]);
    const Tensor* axes = Constant(node, 3);
    if (IsStraight(x.perm) || axes == nullptr || axes->dtype() != DType::kI64) {
      return false;
    }
    const auto rank = static_cast<int64_t>(x.perm.size());
    std::vector<int64_t> moved;
    for (int64_t i = 0; i < axes->num_elements(); ++i) {
      const int64_t axis = axes->data<int64_t>()[i];
      moved.push_back(
          x.perm[static_cast<size_t>(axis < 0 ? axis + rank : axis)]);
    }
    std::vector<ValueId> inputs = {x.base, PlainIn(node.inputs[1]),
                                   PlainIn(node.inputs[2]), lazy_.Ints(moved)};
    if (node.inputs.size() > 4) inputs.push_back(PlainIn(node.inputs[4]));
    Emit(node, std::move(inputs), node.attrs, x.perm);
    return true;
  }

  bool Split(const Node& node) {
    const Lazy x = In(node.inputs[0]);
    if (IsStraight(x.perm)) return false;
    Node copy = node;
    copy.inputs[0] = x.base;
    for (size_t i = 1; i < copy.inputs.size(); ++i) {
      copy.inputs[i] = PlainIn(copy.inputs[i]);
    }
    const auto rank = static_cast<int64_t>(x.perm.size());
    const int64_t axis = node.attrs.Int("axis", 0);
    copy.attrs.Set(
        "axis",
        int64_t{x.perm[static_cast<size_t>(axis < 0 ? axis + rank : axis)]});
    for (ValueId& id : copy.outputs) {
      const ValueId made = made_.AddValue(from_.value(id).name);
      ValueType type = Type(id);
      for (size_t i = 0; i < x.perm.size(); ++i) {
        type.shape[x.perm[i]] = Type(id).shape[static_cast<int>(i)];
      }
      made_.value(made).type = type;
      View(id) = {made, x.perm};
      id = made;
    }
    made_.nodes.push_back(std::move(copy));
    return true;
  }

  // [b, h, t, d] operands are read as [b, t, h, d]: how projections leave them.
  bool Attention(const Node& node) {
    if (Rank(node.inputs[0]) != 4 || Type(node.inputs[0]).dtype != DType::kF32)
      return false;
    const Order heads_inside = {0, 2, 1, 3};
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < 3; ++i) {
      inputs.push_back(lazy_.As(In(node.inputs[i]), heads_inside));
    }
    inputs.push_back(node.inputs.size() > 3 ? PlainIn(node.inputs[3])
                                            : kNoValue);
    if (node.inputs.size() > 4) return false;
    Emit(node, fused::kAttention, std::move(inputs), node.attrs, heads_inside);
    return true;
  }

  const Graph& from_;
  Graph made_;
  LazyGraph lazy_;
  std::vector<Lazy> views_;  // of each value of from_
};

}  // namespace

StatusOr<Graph> ChooseLayout(const Graph& graph) {
  return LayoutPass(graph).Run();
}

}  // namespace millrace::models::graph
