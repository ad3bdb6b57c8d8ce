#include "models/graph/passes/layout.h"

#include <string>
#include <utility>

#include "models/graph/passes/layout_pass.h"

namespace millrace::models::graph {

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

LayoutPass::LayoutPass(const Graph& from)
    : from_(from), lazy_(made_), views_(from.values.size()) {
  made_.name = from.name;
  made_.symbols = from.symbols;
}

StatusOr<Graph> LayoutPass::Run() {
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

const Lazy& LayoutPass::In(ValueId id) {
  Lazy& view = View(id);
  if (view.base == kNoValue) {
    view.base = made_.AddValue(from_.value(id).name);
    made_.value(view.base) = from_.value(id);
    view.perm = Straight(Rank(id));
  }
  return view;
}

ValueId LayoutPass::PlainIn(ValueId id) {
  return id == kNoValue ? kNoValue : lazy_.Plain(In(id));
}

const Tensor* LayoutPass::Constant(const Node& node, size_t i) const {
  return i < node.inputs.size() && node.inputs[i] != kNoValue
             ? from_.value(node.inputs[i]).constant.get()
             : nullptr;
}

int64_t LayoutPass::BaseAxis(const Lazy& x, int64_t axis) {
  const auto rank = static_cast<int64_t>(x.perm.size());
  return x.perm[static_cast<size_t>(axis < 0 ? axis + rank : axis)];
}

bool LayoutPass::LastIsLast(const Lazy& x) {
  return !x.perm.empty() &&
         x.perm.back() == static_cast<int>(x.perm.size()) - 1;
}

ValueId LayoutPass::InOrder(ValueId id, const Order& perm, int rank) {
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

void LayoutPass::Copied(const Node& node) {
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

void LayoutPass::Emit(const Node& node, const OpDef& op,
                      std::vector<ValueId> inputs, Attrs attrs,
                      const Order& perm) {
  const ValueId y = node.outputs[0];
  ValueType type = Type(y);
  for (int i = 0; i < type.shape.rank(); ++i) {
    type.shape[perm[static_cast<size_t>(i)]] = Type(y).shape[i];
  }
  if (const int64_t bf16 = node.attrs.Int("bf16", 0)) attrs.Set("bf16", bf16);
  View(y) = {
      lazy_.AddFused(node.name, op, std::move(inputs), std::move(attrs), type),
      perm};
}

bool LayoutPass::HasOneScale(const Node& node) const {
  return Type(node.inputs[1]).shape.num_elements() == 1 &&
         Type(node.inputs[1]).shape.rank() <= 1;
}

bool LayoutPass::Carried(const Node& node) {
  const OpFacts& facts = node.op->facts;
  if (node.outputs.size() != 1) {
    return facts.layout == LayoutRule::kSplit && Split(node);
  }
  if (facts.reshapes) {
    View(node.outputs[0]) =
        lazy_.Reshaped(In(node.inputs[0]), Type(node.outputs[0]).shape);
    return true;
  }
  if (facts.elementwise == Elementwise::kUnary) return Unary(node);
  if (facts.elementwise == Elementwise::kBroadcast) return Broadcast(node);
  switch (facts.layout) {
    case LayoutRule::kAsWritten:
    case LayoutRule::kSplit:  // into one part
      return false;
    case LayoutRule::kTranspose:
      return Transpose(node);
    case LayoutRule::kConcat:
      return Concat(node);
    case LayoutRule::kSlice:
      return Slice(node);
    case LayoutRule::kSelect:
      return Select(node);
    case LayoutRule::kReduce:
      return Reduce(node);
    case LayoutRule::kOneScale:
      return HasOneScale(node) && Unary(node);
    case LayoutRule::kSoftmax:
      return Softmax(node);
    case LayoutRule::kLayerNorm:
      return LayerNorm(node);
    case LayoutRule::kBatchNorm:
      return BatchNorm(node);
    case LayoutRule::kGroupNorm:
      return GroupNorm(node);
    case LayoutRule::kPool:
      return Pool(node);
    case LayoutRule::kResize:
      return Resize(node);
    case LayoutRule::kConv:
      return Convolution(node);
    case LayoutRule::kConvTranspose:
      return TransposedConvolution(node);
    case LayoutRule::kLinear:
      return Linear(node, false);
    case LayoutRule::kMatMul:
      return Linear(node, true) || Product(node);
    case LayoutRule::kGemm:
      return Gemm(node);
    case LayoutRule::kAttention:
      return Attention(node);
  }
  return false;
}

StatusOr<Graph> ChooseLayout(const Graph& graph) {
  return LayoutPass(graph).Run();
}

}  // namespace millrace::models::graph
