// Parts of a tensor, and tensors with a part replaced: slices, single places,
// splits. A change of a part is carried into the whole by SliceScatter.
#include <algorithm>
#include <limits>

#include "models/graph/pt2/aten.h"

namespace millrace::models::graph::pt2 {
namespace {

constexpr int64_t kToEnd = std::numeric_limits<int64_t>::max();

struct Range {
  int64_t axis;
  Num start, end, step;
};

Range SliceRange(Lowering& n, const Operand& x) {
  return {n.Axis("dim", 0, x.rank()), n.Number("start", Num::Of(0)),
          n.Number("end", Num::Of(kToEnd)), n.Number("step", Num::Of(1))};
}

ValueId ScatterRange(Lowering& n, ValueId whole, ValueId part,
                     const Range& range) {
  Emitter& e = n.emit();
  return e.Op("SliceScatter",
              {whole, part, e.List({range.start}), e.List({range.end}),
               e.Ints({range.axis}), e.List({range.step})});
}

void Slice(Lowering& n) {
  const Operand x = n.Arg("self");
  const Range range = SliceRange(n, x);
  if (range.start.Is(0) && range.end.Is(kToEnd) && range.step.Is(1)) {
    return n.Return(x.id);
  }
  n.Return(
      n.emit().Slice(x.id, range.axis, range.start, range.end, range.step));
}

ValueId SliceBack(Lowering& n, const Operand& whole, ValueId part, size_t) {
  return ScatterRange(n, whole.id, part, SliceRange(n, whole));
}

void SliceScatter(Lowering& n) {
  const Operand x = n.Arg("self");
  n.Return(ScatterRange(n, x.id, n.In("src"), SliceRange(n, x)));
}

void Narrow(Lowering& n) {
  const Operand x = n.Arg("self");
  const Num start = n.Number("start");
  const Num end = n.emit().Add(start, n.Number("length"));
  n.Return(
      n.emit().Slice(x.id, n.Axis("dim", 0, x.rank()), start, end, Num::Of(1)));
}

ValueId NarrowBack(Lowering& n, const Operand& whole, ValueId part, size_t) {
  const Num start = n.Number("start");
  return ScatterRange(n, whole.id, part,
                      {n.Axis("dim", 0, whole.rank()), start,
                       n.emit().Add(start, n.Number("length")), Num::Of(1)});
}

ValueId SelectAt(Lowering& n, ValueId x, int64_t axis, const Num& index) {
  return n.emit().Op("Gather", {x, n.emit().Value(index, DType::kI64)},
                     {{"axis", axis}});
}

void Select(Lowering& n) {
  const Operand x = n.Arg("self");
  n.Return(SelectAt(n, x.id, n.Axis("dim", 0, x.rank()), n.Number("index")));
}

ValueId ScatterAt(Lowering& n, ValueId whole, ValueId part, int64_t axis,
                  const Num& index) {
  const Num end =
      index.Is(-1) ? Num::Of(kToEnd) : n.emit().Add(index, Num::Of(1));
  return ScatterRange(n, whole, n.emit().Unsqueeze(part, {axis}),
                      {axis, index, end, Num::Of(1)});
}

ValueId SelectBack(Lowering& n, const Operand& whole, ValueId part, size_t) {
  return ScatterAt(n, whole.id, part, n.Axis("dim", 0, whole.rank()),
                   n.Number("index"));
}

void SelectScatter(Lowering& n) {
  const Operand x = n.Arg("self");
  n.Return(ScatterAt(n, x.id, n.In("src"), n.Axis("dim", 0, x.rank()),
                     n.Number("index")));
}

void Unbind(Lowering& n) {
  const Operand x = n.Arg("self");
  const int64_t axis = n.Axis("dim", 0, x.rank());
  for (size_t i = 0; i < n.num_outputs(); ++i) {
    n.Return(i, SelectAt(n, x.id, axis, Num::Of(static_cast<int64_t>(i))));
  }
}

ValueId UnbindBack(Lowering& n, const Operand& whole, ValueId part,
                   size_t view) {
  return ScatterAt(n, whole.id, part, n.Axis("dim", 0, whole.rank()),
                   Num::Of(static_cast<int64_t>(view)));
}

// The lengths of the parts of each splitting operator.
std::vector<Num> PartSizes(Lowering& n, const Operand& x, int64_t axis) {
  if (n.Has("split_sizes")) return n.Numbers("split_sizes");
  Emitter& e = n.emit();
  const Num total = n.Size(x, axis);
  const auto count = static_cast<int64_t>(n.num_outputs());
  Num part;
  if (n.Has("chunks")) {
    const Num chunks = n.Number("chunks");
    part = e.FloorDiv(e.Sub(e.Add(total, chunks), Num::Of(1)), chunks);
  } else {
    part = n.Number("split_size");
  }
  std::vector<Num> sizes(static_cast<size_t>(std::max<int64_t>(count - 1, 0)),
                         part);
  sizes.push_back(e.Sub(total, e.Mul(part, Num::Of(count - 1))));
  return sizes;
}

void Split(Lowering& n) {
  const Operand x = n.Arg("self");
  const int64_t axis = n.Axis("dim", 0, x.rank());
  const std::vector<Num> sizes = PartSizes(n, x, axis);
  if (sizes.size() != n.num_outputs()) {
    return n.Fail("it makes not as many parts as the file says");
  }
  const auto parts = n.emit().Ops("Split", {x.id, n.emit().List(sizes)},
                                  {{"axis", axis}}, n.num_outputs());
  for (size_t i = 0; i < parts.size(); ++i) n.Return(i, parts[i]);
}

ValueId SplitBack(Lowering& n, const Operand& whole, ValueId part,
                  size_t view) {
  const int64_t axis = n.Axis("dim", 0, whole.rank());
  const std::vector<Num> sizes = PartSizes(n, whole, axis);
  Num start = Num::Of(0);
  if (view >= sizes.size()) return kNoValue;
  for (size_t i = 0; i < view; ++i) start = n.emit().Add(start, sizes[i]);
  return ScatterRange(
      n, whole.id, part,
      {axis, start, n.emit().Add(start, sizes[view]), Num::Of(1)});
}

constexpr AtenOp kRows[] = {
    {"aten.slice.Tensor", Slice, Alias::kAlways, SliceBack},
    {"aten.slice_copy.Tensor", Slice},
    {"aten.slice_scatter.default", SliceScatter},
    {"aten.narrow.default", Narrow, Alias::kAlways, NarrowBack},
    {"aten.select.int", Select, Alias::kAlways, SelectBack},
    {"aten.select_copy.int", Select},
    {"aten.select_scatter.default", SelectScatter},
    {"aten.unbind.int", Unbind, Alias::kAlways, UnbindBack},
    {"aten.split.Tensor", Split, Alias::kAlways, SplitBack},
    {"aten.split.sizes", Split, Alias::kAlways, SplitBack},
    {"aten.split_with_sizes.default", Split, Alias::kAlways, SplitBack},
    {"aten.chunk.default", Split, Alias::kAlways, SplitBack},
    {"aten.unsafe_chunk.default", Split},
    {"aten.unsafe_split.Tensor", Split},
};

}  // namespace

std::span<const AtenOp> PartRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
