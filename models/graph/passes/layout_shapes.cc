// How axes and elements are carried in another order.
#include <algorithm>
#include <utility>

#include "models/graph/passes/layout_pass.h"

namespace millrace::models::graph {

bool LayoutPass::Transpose(const Node& node) {
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
  View(node.outputs[0]) = lazy_.Simplified(y);
  return true;
}

bool LayoutPass::Unary(const Node& node) {
  const Lazy x = In(node.inputs[0]);
  std::vector<ValueId> inputs = {x.base};
  // The bounds of Clip are scalars.
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    inputs.push_back(PlainIn(node.inputs[i]));
  }
  Emit(node, std::move(inputs), node.attrs, x.perm);
  return true;
}

bool LayoutPass::Broadcast(const Node& node) {
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

bool LayoutPass::Reduce(const Node& node) {
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
          std::lower_bound(axes.begin(), axes.end(), x.perm[i]) - axes.begin();
      perm.push_back(x.perm[i] - static_cast<int>(before));
    }
  }
  Emit(node, {x.base, lazy_.Ints(axes)}, node.attrs, perm);
  return true;
}

bool LayoutPass::Concat(const Node& node) {
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

bool LayoutPass::Slice(const Node& node) {
  const Lazy x = In(node.inputs[0]);
  const Tensor* axes = Constant(node, 3);
  if (IsStraight(x.perm) || axes == nullptr || axes->dtype() != DType::kI64) {
    return false;
  }
  std::vector<int64_t> moved;
  for (int64_t i = 0; i < axes->num_elements(); ++i) {
    const int64_t axis = axes->data<int64_t>()[i];
    moved.push_back(BaseAxis(x, axis));
  }
  std::vector<ValueId> inputs = {x.base, PlainIn(node.inputs[1]),
                                 PlainIn(node.inputs[2]), lazy_.Ints(moved)};
  if (node.inputs.size() > 4) inputs.push_back(PlainIn(node.inputs[4]));
  Emit(node, std::move(inputs), node.attrs, x.perm);
  return true;
}

bool LayoutPass::Split(const Node& node) {
  const Lazy x = In(node.inputs[0]);
  if (IsStraight(x.perm)) return false;
  Node copy = node;
  copy.inputs[0] = x.base;
  for (size_t i = 1; i < copy.inputs.size(); ++i) {
    copy.inputs[i] = PlainIn(copy.inputs[i]);
  }
  const int64_t axis = node.attrs.Int("axis", 0);
  copy.attrs.Set("axis", BaseAxis(x, axis));
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

bool LayoutPass::Select(const Node& node) {
  const Tensor* index = Constant(node, 1);
  if (index == nullptr || index->dtype() != DType::kI64 ||
      index->shape().rank() != 0) {
    return false;
  }
  const Lazy x = In(node.inputs[0]);
  const int64_t axis = node.attrs.Int("axis", 0);
  const int64_t base_axis = BaseAxis(x, axis);
  const int64_t size = lazy_.base_shape(x)[static_cast<int>(base_axis)];
  int64_t at = *index->data<int64_t>();
  if (at < 0) at += size;
  if (at < 0 || at >= size) return false;
  ValueType type{lazy_.dtype(x), lazy_.base_shape(x)};
  type.shape[static_cast<int>(base_axis)] = 1;
  const ValueId one = lazy_.Add(
      node.name, "Slice",
      {x.base, lazy_.Ints({at}), lazy_.Ints({at + 1}), lazy_.Ints({base_axis})},
      {}, type);
  View(node.outputs[0]) =
      lazy_.Reshaped({one, x.perm}, Type(node.outputs[0]).shape);
  return true;
}

}  // namespace millrace::models::graph
