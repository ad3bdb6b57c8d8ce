// Tensors put together, repeated, turned and cut into windows.
#include <algorithm>
#include <limits>
#include <utility>

#include "models/graph/pt2/aten.h"

namespace millrace::models::graph::pt2 {
namespace {

constexpr int64_t kToEnd = std::numeric_limits<int64_t>::max();

void Cat(Lowering& n) {
  const std::vector<Operand> parts = n.Args("tensors");
  Emitter& e = n.emit();
  const TensorMeta* out = n.OutMeta(0);
  const int rank = out != nullptr ? out->rank() : 0;
  std::vector<ValueId> values;
  for (const Operand& part : parts) {
    if (!part) return n.Fail("a part is missing");
    // PyTorch passes over empty lists, whatever the others' rank.
    if (part.rank() == 1 && rank > 1) continue;
    values.push_back(e.Cast(part.id, part.dtype(), n.OutType(0)));
  }
  if (values.empty()) return n.Fail("there is nothing to put together");
  n.Return(e.Concat(std::move(values), n.Axis("dim", 0, rank)));
}

void Stack(Lowering& n) {
  const std::vector<Operand> parts = n.Args("tensors");
  Emitter& e = n.emit();
  std::vector<ValueId> values;
  int64_t axis = 0;
  for (const Operand& part : parts) {
    if (!part) return n.Fail("a part is missing");
    axis = n.Axis("dim", 0, part.rank() + 1);
    values.push_back(
        e.Unsqueeze(e.Cast(part.id, part.dtype(), n.OutType(0)), {axis}));
  }
  if (values.empty()) return n.Fail("there is nothing to put together");
  n.Return(e.Concat(std::move(values), axis));
}

// x[k:] and x[:k], k counted from the end when elements move to higher places
// and the size is known.
ValueId RollAxis(Lowering& n, ValueId x, int64_t axis, int64_t shift,
                 const Num& size) {
  Emitter& e = n.emit();
  Num cut = Num::Of(0);
  if (!size.known()) {
    const Num turned = {.id = e.Op("Mod", {e.Value(Num::Of(shift), DType::kI64),
                                           e.Value(size, DType::kI64)})};
    cut = e.Sub(size, turned);
  } else if (size.integer > 0) {
    cut = Num::Of(-(shift % size.integer));
  }
  if (cut.Is(0)) return x;
  const ValueId back = e.Slice(x, axis, cut, Num::Of(kToEnd), Num::Of(1));
  const ValueId front = e.Slice(x, axis, Num::Of(0), cut, Num::Of(1));
  return e.Concat({back, front}, axis);
}

void Roll(Lowering& n) {
  const Operand x = n.Arg("self");
  const std::vector<int64_t> shifts = n.Ints("shifts");
  const std::vector<int64_t> dims = n.Ints("dims");
  Emitter& e = n.emit();
  if (dims.empty() && shifts.size() == 1) {
    std::vector<Num> sizes = {Num::Of(-1)};
    if (x.meta->is_complex) sizes.push_back(Num::Of(2));
    Num size = Num::Of(1);
    for (const Num& each : n.Sizes(x)) size = e.Mul(size, each);
    return n.Return(e.ReshapeLike(
        RollAxis(n, e.Reshape(x.id, sizes), 0, shifts[0], size), x.id));
  }
  if (dims.size() != shifts.size()) return n.Fail("dims and shifts differ");
  ValueId y = x.id;
  for (size_t i = 0; i < dims.size(); ++i) {
    const auto axis = NormalAxis(dims[i], x.rank());
    if (!axis.ok()) return e.Fail(axis.status());
    y = RollAxis(n, y, *axis, shifts[i], n.Size(x, *axis));
  }
  n.Return(y);
}

void Flip(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  std::vector<int64_t> axes;
  if (n.Ints("dims").empty()) return n.Return(x.id);
  for (const int64_t axis : n.Axes("dims", x.rank())) {
    if (axis < x.rank()) axes.push_back(axis);
  }
  const std::vector<int64_t> last(axes.size(), -1);
  const std::vector<int64_t> before_first(axes.size(),
                                          std::numeric_limits<int64_t>::min());
  n.Return(e.Op("Slice", {x.id, e.Ints(last), e.Ints(before_first),
                          e.Ints(axes), e.Ints(last)}));
}

// As often as said along each axis; lists longer than the rank add axes.
void Repeat(Lowering& n) {
  const Operand x = n.Arg("self");
  std::vector<Num> times = n.Numbers(n.Has("repeats") ? "repeats" : "dims");
  std::vector<int64_t> added;
  for (int64_t i = x.rank(); i < static_cast<int64_t>(times.size()); ++i) {
    added.push_back(i - x.rank());
  }
  while (times.size() < static_cast<size_t>(x.rank())) {
    times.insert(times.begin(), Num::Of(1));
  }
  Emitter& e = n.emit();
  n.Return(e.Op("Tile", {e.Unsqueeze(x.id, added), e.List(times)}));
}

void RepeatInterleave(Lowering& n) {
  const Operand x = n.Arg("self");
  const Num times = n.Number("repeats");
  Emitter& e = n.emit();
  std::vector<Num> sizes = n.Sizes(x);
  ValueId y = x.id;
  int64_t axis = 0;
  if (n.Has("dim")) {
    axis = n.Axis("dim", 0, x.rank());
  } else {
    y = e.Reshape(y, {Num::Of(-1)});
    Num all = Num::Of(1);
    for (const Num& size : sizes) all = e.Mul(all, size);
    sizes = {all};
  }
  if (sizes.empty()) return n.Fail("an operand with axes is needed");
  std::vector<Num> wide(sizes.size() + 1, Num::Of(1));
  wide[static_cast<size_t>(axis) + 1] = times;
  y = e.Expand(e.Unsqueeze(y, {axis + 1}), e.List(wide));
  Num& size = sizes[static_cast<size_t>(axis)];
  size = e.Mul(size, times);
  n.Return(e.Reshape(y, sizes));
}

void Meshgrid(Lowering& n) {
  const std::vector<Operand> lists = n.Args("tensors");
  Emitter& e = n.emit();
  const bool swapped = n.Text("indexing", "ij") == "xy" && lists.size() > 1;
  std::vector<Num> sizes;
  for (const Operand& list : lists) {
    if (!list || list.rank() > 1) return n.Fail("lists are needed");
    sizes.push_back(list.rank() == 0 ? Num::Of(1) : n.Size(list, 0));
  }
  if (swapped) std::swap(sizes[0], sizes[1]);
  for (size_t i = 0; i < lists.size(); ++i) {
    const size_t axis = swapped && i < 2 ? 1 - i : i;
    std::vector<Num> own(lists.size(), Num::Of(1));
    own[axis] = sizes[axis];
    n.Return(i, e.Expand(e.Reshape(lists[i].id, own), e.List(sizes)));
  }
}

// [0, step, 2·step, …), `count` of them.
ValueId Steps(Emitter& e, const Num& count, const Num& step) {
  const ValueId zero = e.Integer(0, DType::kI64);
  return e.Op("Range", {zero, e.Value(e.Mul(count, step), DType::kI64),
                        e.Value(step, DType::kI64)});
}

// Where windows of `size`, `step` apart, have their elements:
// [windows, size].
ValueId WindowPlaces(Emitter& e, const Num& total, int64_t size, int64_t step,
                     int64_t dilation) {
  const Num reach = Num::Of(dilation * (size - 1) + 1);
  const Num count =
      e.Add(e.FloorDiv(e.Sub(total, reach), Num::Of(step)), Num::Of(1));
  return e.Op("Add", {e.Unsqueeze(Steps(e, count, Num::Of(step)), {1}),
                      Steps(e, Num::Of(size), Num::Of(dilation))});
}

// Windows along an axis, their elements in a new last axis.
void Unfold(Lowering& n) {
  const Operand x = n.Arg("self");
  const int64_t axis = n.Axis("dimension", 0, x.rank());
  const int64_t size = n.Int("size", 1);
  const int64_t step = n.Int("step", 1);
  if (x.rank() == 0 || size < 1 || size > (1 << 24) || step < 1 ||
      step > (1 << 24)) {
    return n.Fail("windows of this size");
  }
  Emitter& e = n.emit();
  const ValueId windows =
      e.Op("Gather", {x.id, WindowPlaces(e, n.Size(x, axis), size, step, 1)},
           {{"axis", axis}});
  std::vector<int64_t> order;
  for (int64_t i = 0; i <= x.rank(); ++i) {
    if (i != axis + 1) order.push_back(i);
  }
  order.push_back(axis + 1);
  n.Return(e.Transpose(windows, order));
}

// Windows of an image as columns: [batch, c·kh·kw, windows].
void Im2Col(Lowering& n) {
  const Operand x = n.Arg("self");
  const auto kernel = n.Ints("kernel_size", 2, 1);
  const auto dilation = n.Ints("dilation", 2, 1);
  const auto pads = n.Ints("padding", 2, 0);
  const auto stride = n.Ints("stride", 2, 1);
  if (x.rank() != 4) return n.Fail("an operand of rank 4 is needed");
  for (size_t i = 0; i < 2; ++i) {
    if (kernel[i] < 1 || kernel[i] > 4096 || dilation[i] < 1 ||
        dilation[i] > 4096 || stride[i] < 1 || stride[i] > 4096 ||
        pads[i] < 0 || pads[i] > 4096) {
      return n.Fail("windows of this size");
    }
  }
  Emitter& e = n.emit();
  ValueId y = x.id;
  if (pads[0] != 0 || pads[1] != 0) {
    y = e.Op("Pad",
             {y, e.Ints({pads[0], pads[1], pads[0], pads[1]}),
              e.Number(0, x.dtype()), e.Ints({2, 3})},
             {{"mode", std::string("constant")}});
  }
  for (int64_t i = 0; i < 2; ++i) {
    const auto at = static_cast<size_t>(i);
    const Num total = e.Add(n.Size(x, 2 + i), Num::Of(2 * pads[at]));
    y = e.Op("Gather",
             {y, WindowPlaces(e, total, kernel[at], stride[at], dilation[at])},
             {{"axis", 2 + 2 * i}});
  }
  // [batch, c, rows, kh, columns, kw]
  y = e.Transpose(y, {0, 1, 3, 5, 2, 4});
  const Num area = Num::Of(kernel[0] * kernel[1]);
  n.Return(
      e.Reshape(y, {n.Size(x, 0), e.Mul(n.Size(x, 1), area), Num::Of(-1)}));
}

// Of fixed sizes only; the diagonal becomes the last axis.
void Diagonal(Lowering& n) {
  const Operand x = n.Arg("self");
  const int64_t a = n.Axis("dim1", 0, x.rank());
  const int64_t b = n.Axis("dim2", 1, x.rank());
  const int64_t offset = n.Int("offset", 0);
  if (x.rank() < 2 || a == b) return n.Fail("a matrix is needed");
  const Dim& rows = x.meta->sizes[static_cast<size_t>(a)];
  const Dim& columns = x.meta->sizes[static_cast<size_t>(b)];
  if (!rows.fixed || !columns.fixed || rows.hint > (1 << 20) ||
      columns.hint > (1 << 20)) {
    return n.Fail("a diagonal of sizes that are not fixed");
  }
  std::vector<int64_t> places;
  for (int64_t row = 0; row < rows.hint; ++row) {
    const int64_t column = row + offset;
    if (column >= 0 && column < columns.hint) {
      places.push_back(row * columns.hint + column);
    }
  }
  Emitter& e = n.emit();
  std::vector<int64_t> order;
  std::vector<Num> sizes;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i == a || i == b) continue;
    order.push_back(i);
    sizes.push_back(n.Size(x, i));
  }
  const auto axis = static_cast<int64_t>(order.size());
  order.insert(order.end(), {a, b});
  sizes.push_back(Num::Of(rows.hint * columns.hint));
  const ValueId flat = e.Reshape(e.Transpose(x.id, order), sizes);
  n.Return(e.Op("Gather", {flat, e.Ints(places)}, {{"axis", axis}}));
}

ValueId NoWriteBack(Lowering&, const Operand&, ValueId, size_t) {
  return kNoValue;
}

constexpr AtenOp kRows[] = {
    {"aten.cat.default", Cat},
    {"aten.concat.default", Cat},
    {"aten.stack.default", Stack},
    {"aten.roll.default", Roll},
    {"aten.flip.default", Flip},
    {"aten.repeat.default", Repeat},
    {"aten.tile.default", Repeat},
    {"aten.repeat_interleave.self_int", RepeatInterleave},
    {"aten.meshgrid.default", Meshgrid},
    {"aten.meshgrid.indexing", Meshgrid},
    {"aten.unfold.default", Unfold, Alias::kAlways, NoWriteBack},
    {"aten.im2col.default", Im2Col},
    {"aten.diagonal.default", Diagonal, Alias::kAlways, NoWriteBack},
};

}  // namespace

std::span<const AtenOp> ArrangeRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
