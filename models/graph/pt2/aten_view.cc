// Other looks at the same elements: shapes and orders of axes. Each view says
// how a change of it is carried into the whole; where nothing is said, it has
// all elements in their order.
#include <algorithm>

#include "models/graph/pt2/aten.h"
#include "models/graph/pt2/strides.h"

namespace millrace::models::graph::pt2 {
namespace {

ValueId NoWriteBack(Lowering&, const Operand&, ValueId, size_t) {
  return kNoValue;
}

void View(Lowering& n) {
  const char* sizes = n.Has("size") ? "size" : "shape";
  n.Return(n.emit().Reshape(n.In("self"), n.Numbers(sizes)));
}

void ViewAs(Lowering& n) {
  n.Return(n.emit().ReshapeLike(n.In("self"), n.In("other")));
}

// The sizes of x with [first, last) replaced.
std::vector<Num> Replaced(Lowering& n, const Operand& x, int64_t first,
                          int64_t last, const std::vector<Num>& by) {
  std::vector<Num> sizes;
  for (int64_t i = 0; i < first; ++i) sizes.push_back(n.Size(x, i));
  sizes.insert(sizes.end(), by.begin(), by.end());
  for (int64_t i = last; i < x.rank(); ++i) sizes.push_back(n.Size(x, i));
  return sizes;
}

void Flatten(Lowering& n) {
  const Operand x = n.Arg("self");
  const int64_t first = n.Axis("start_dim", 0, x.rank());
  const int64_t last = n.Axis("end_dim", -1, x.rank());
  if (x.rank() == 0) return n.Return(n.emit().Reshape(x.id, {Num::Of(1)}));
  if (first > last) return n.Fail("start_dim comes behind end_dim");
  Num size = Num::Of(1);
  for (int64_t i = first; i <= last; ++i) {
    size = n.emit().Mul(size, n.Size(x, i));
  }
  n.Return(n.emit().Reshape(x.id, Replaced(n, x, first, last + 1, {size})));
}

void Unflatten(Lowering& n) {
  const Operand x = n.Arg("self");
  const int64_t axis = n.Axis("dim", 0, x.rank());
  std::vector<Num> sizes = n.Numbers("sizes");
  // -1 is what the others leave: a whole shape may have only one of them.
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!sizes[i].Is(-1)) continue;
    Num others = Num::Of(1);
    for (size_t j = 0; j < sizes.size(); ++j) {
      if (j != i) others = n.emit().Mul(others, sizes[j]);
    }
    sizes[i] = n.emit().FloorDiv(n.Size(x, axis), others);
    break;
  }
  n.Return(n.emit().Reshape(x.id, Replaced(n, x, axis, axis + 1, sizes)));
}

void Squeeze(Lowering& n) {
  const Operand x = n.Arg("self");
  std::vector<int64_t> axes;
  for (const int64_t axis : n.Axes("dim", x.rank())) {
    if (axis >= x.rank()) continue;
    const Dim& dim = x.meta->sizes[static_cast<size_t>(axis)];
    if (dim.fixed && dim.hint == 1) axes.push_back(axis);
  }
  n.Return(n.emit().Squeeze(x.id, axes));
}

void Unsqueeze(Lowering& n) {
  const Operand x = n.Arg("self");
  n.Return(n.emit().Unsqueeze(x.id, {n.Axis("dim", 0, x.rank() + 1)}));
}

std::vector<int64_t> InOrder(int rank) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < rank; ++i) order.push_back(i);
  return order;
}

// The order of axes that each permuting operator asks for.
std::vector<int64_t> PermuteOrder(Lowering& n, const Operand& x) {
  std::vector<int64_t> order = n.Axes("dims", x.rank());
  if (order.size() != static_cast<size_t>(x.rank())) {
    n.Fail("dims name not every axis once");
    order = InOrder(x.rank());
  }
  return order;
}

std::vector<int64_t> TransposeOrder(Lowering& n, const Operand& x) {
  std::vector<int64_t> order = InOrder(x.rank());
  if (x.rank() < 2) return order;
  const bool named = n.Has("axis0");  // swapaxes
  std::swap(
      order[static_cast<size_t>(n.Axis(named ? "axis0" : "dim0", 0, x.rank()))],
      order[static_cast<size_t>(
          n.Axis(named ? "axis1" : "dim1", 1, x.rank()))]);
  return order;
}

std::vector<int64_t> ReversedOrder(Lowering&, const Operand& x) {
  std::vector<int64_t> order = InOrder(x.rank());
  std::reverse(order.begin(), order.end());
  return order;
}

std::vector<int64_t> LastTwoOrder(Lowering& n, const Operand& x) {
  std::vector<int64_t> order = InOrder(x.rank());
  if (x.rank() < 2) {
    n.Fail("a matrix is needed");
    return order;
  }
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return order;
}

std::vector<int64_t> MoveOrder(Lowering& n, const Operand& x) {
  if (x.rank() == 0) return {};
  const auto from = n.Axes("source", x.rank());
  const auto to = n.Axes("destination", x.rank());
  std::vector<int64_t> order(static_cast<size_t>(x.rank()), -1);
  if (from.size() != to.size()) {
    n.Fail("source and destination are not as many");
    return InOrder(x.rank());
  }
  for (size_t i = 0; i < from.size(); ++i) {
    order[static_cast<size_t>(to[i])] = from[i];
  }
  int64_t next = 0;
  for (int64_t& axis : order) {
    if (axis >= 0) continue;
    while (std::count(from.begin(), from.end(), next) > 0) ++next;
    axis = next++;
  }
  return order;
}

using Order = std::vector<int64_t> (*)(Lowering&, const Operand&);

template <Order kOrder>
void Permute(Lowering& n) {
  const Operand x = n.Arg("self");
  n.Return(n.emit().Transpose(x.id, kOrder(n, x)));
}

template <Order kOrder>
ValueId PermuteBack(Lowering& n, const Operand& whole, ValueId part, size_t) {
  const std::vector<int64_t> order = kOrder(n, whole);
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  return n.emit().Transpose(part, back);
}

void Expand(Lowering& n) {
  std::vector<Num> sizes = n.Numbers("size");
  for (Num& size : sizes) {
    if (size.Is(-1)) size = Num::Of(1);  // as it is: 1 does not repeat
  }
  n.Return(n.emit().Expand(n.In("self"), n.emit().List(sizes)));
}

void ExpandAs(Lowering& n) {
  n.Return(n.emit().Expand(n.In("self"), n.emit().Shape(n.In("other"))));
}

// Any strides over the memory of a tensor that fills it: its axes are put in
// the order in which they lie in memory first.
void AsStrided(Lowering& n) {
  const Operand x = n.Arg("self");
  std::vector<int64_t> order = InOrder(x.rank());
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return x.meta->strides[static_cast<size_t>(a)] >
           x.meta->strides[static_cast<size_t>(b)];
  });
  TensorMeta lying = *x.meta;
  for (size_t i = 0; i < order.size(); ++i) {
    lying.sizes[i] = x.meta->sizes[static_cast<size_t>(order[i])];
    lying.strides[i] = x.meta->strides[static_cast<size_t>(order[i])];
  }
  if (!IsContiguous(lying) || x.meta->storage_offset != 0) {
    return n.Fail("as_strided of a tensor that is part of another");
  }
  Emitter& e = n.emit();
  const ValueId dense =
      order == InOrder(x.rank()) ? x.id : e.Transpose(x.id, order);
  n.Return(e.Op("AsStrided",
                {dense, e.List(n.Numbers("size")), e.List(n.Numbers("stride")),
                 e.List({n.Number("storage_offset", Num::Of(0))})}));
}

constexpr AtenOp kRows[] = {
    {"aten.view.default", View, Alias::kAlways},
    {"aten._unsafe_view.default", View},
    {"aten.view_copy.default", View},
    {"aten.reshape.default", View, Alias::kIfStrided},
    {"aten.view_as.default", ViewAs, Alias::kAlways},
    {"aten.reshape_as.default", ViewAs, Alias::kIfStrided},
    {"aten.flatten.using_ints", Flatten, Alias::kIfStrided},
    {"aten.unflatten.int", Unflatten, Alias::kAlways},
    {"aten.squeeze.default", Squeeze, Alias::kAlways},
    {"aten.squeeze.dim", Squeeze, Alias::kAlways},
    {"aten.squeeze.dims", Squeeze, Alias::kAlways},
    {"aten.unsqueeze.default", Unsqueeze, Alias::kAlways},
    {"aten.permute.default", Permute<PermuteOrder>, Alias::kAlways,
     PermuteBack<PermuteOrder>},
    {"aten.transpose.int", Permute<TransposeOrder>, Alias::kAlways,
     PermuteBack<TransposeOrder>},
    {"aten.swapaxes.default", Permute<TransposeOrder>, Alias::kAlways,
     PermuteBack<TransposeOrder>},
    {"aten.swapdims.default", Permute<TransposeOrder>, Alias::kAlways,
     PermuteBack<TransposeOrder>},
    {"aten.t.default", Permute<ReversedOrder>, Alias::kAlways,
     PermuteBack<ReversedOrder>},
    {"aten.numpy_T.default", Permute<ReversedOrder>, Alias::kAlways,
     PermuteBack<ReversedOrder>},
    {"aten.mT.default", Permute<LastTwoOrder>, Alias::kAlways,
     PermuteBack<LastTwoOrder>},
    {"aten.adjoint.default", Permute<LastTwoOrder>, Alias::kAlways,
     PermuteBack<LastTwoOrder>},
    {"aten.movedim.int", Permute<MoveOrder>, Alias::kAlways,
     PermuteBack<MoveOrder>},
    {"aten.movedim.intlist", Permute<MoveOrder>, Alias::kAlways,
     PermuteBack<MoveOrder>},
    {"aten.expand.default", Expand, Alias::kAlways, NoWriteBack},
    {"aten.expand_as.default", ExpandAs, Alias::kAlways, NoWriteBack},
    {"aten.broadcast_to.default", Expand, Alias::kAlways, NoWriteBack},
    {"aten.as_strided.default", AsStrided, Alias::kAlways, NoWriteBack},
};

}  // namespace

std::span<const AtenOp> ViewRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
