// Where values stand among others: membership, sorted lists, what is there
// more than once, quantiles, and extremes so far.
#include <string>
#include <utility>

#include "models/graph/pt2/aten.h"

namespace millrace::models::graph::pt2 {
namespace {

Attrs Dropped() { return {{"keepdims", int64_t{0}}}; }

ValueId CountTrue(Emitter& e, ValueId truths, int64_t axis) {
  return e.Op("ReduceSum",
              {e.Cast(truths, DType::kBool, DType::kI64), e.Ints({axis})},
              Dropped());
}

ValueId Flat(Emitter& e, ValueId x) { return e.Reshape(x, {Num::Of(-1)}); }

ValueId UpTo(Emitter& e, ValueId count) {
  return e.Op("Range",
              {e.Integer(0, DType::kI64), count, e.Integer(1, DType::kI64)});
}

// ---- membership ----
void ReturnIsIn(Lowering& n, ValueId found) {
  n.ReturnAs(DType::kBool,
             n.Flag("invert", false) ? n.emit().Op("Not", {found}) : found);
}
void IsIn(Lowering& n) {
  const Operand x = n.Arg("elements");
  const Operand list = n.Arg("test_elements");
  Emitter& e = n.emit();
  const DType type = Promotion().Add(x).Add(list).Type();
  const ValueId equal =
      e.Op("Equal", {e.Unsqueeze(e.Cast(x.id, x.dtype(), type), {x.rank()}),
                     Flat(e, e.Cast(list.id, list.dtype(), type))});
  ReturnIsIn(n, e.Op("Greater", {CountTrue(e, equal, x.rank()),
                                 e.Integer(0, DType::kI64)}));
}
void IsInNumber(Lowering& n) {
  const Operand x = n.Arg("elements");
  Emitter& e = n.emit();
  ReturnIsIn(
      n, e.Op("Equal", {x.id, e.Value(n.Number("test_element"), x.dtype())}));
}

// How many of a sorted list lie below each value, or not above it. A list of
// several rows has one for each row of values.
void SearchSorted(Lowering& n) {
  const Operand list = n.Arg("sorted_sequence");
  const Operand x = n.Arg("self");
  if (n.Has("sorter") || list.rank() < 1 ||
      (list.rank() != 1 && list.rank() != x.rank())) {
    return n.Fail("a list that is not sorted, or of another rank");
  }
  Emitter& e = n.emit();
  const DType type = Promotion().Add(x).Add(list).Type();
  ValueId bounds = e.Cast(list.id, list.dtype(), type);
  if (list.rank() > 1) bounds = e.Unsqueeze(bounds, {list.rank() - 1});
  const ValueId values = e.Unsqueeze(e.Cast(x.id, x.dtype(), type), {x.rank()});
  const bool right =
      n.Flag("right", false) || n.Text("side", "left") == "right";
  n.ReturnAs(
      DType::kI64,
      CountTrue(e, e.Op(right ? "LessOrEqual" : "Less", {bounds, values}),
                x.rank()));
}

// ---- how often ----
void BinCount(Lowering& n) {
  const Operand x = n.Arg("self");
  const int64_t least = n.Int("minlength", 0);
  Emitter& e = n.emit();
  const ValueId places = e.Cast(x.id, x.dtype(), DType::kI64);
  // Of nothing at all the greatest is -1.
  const ValueId greatest =
      e.Op("ReduceMax", {e.Concat({places, e.Ints({-1})}, 0)}, Dropped());
  const ValueId size =
      e.Op("Max", {e.Op("Add", {greatest, e.Integer(1, DType::kI64)}),
                   e.Integer(least, DType::kI64)});
  const Operand weights = n.ArgOrNone("weights");
  const DType type = weights ? n.OutType(0) : DType::kI64;
  const ValueId zeros = e.Expand(e.Number(0, type), e.Unsqueeze(size, {0}));
  const ValueId each = weights ? e.Cast(weights.id, weights.dtype(), type)
                               : e.Expand(e.Number(1, type), e.Shape(places));
  n.ReturnAs(type,
             e.Op("ScatterElements", {zeros, places, each},
                  {{"axis", int64_t{0}}, {"reduction", std::string("add")}}));
}

// Values, their places in the result, how often each is there.
void Unique(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  Attrs attrs = {{"sorted", int64_t{1}}};
  if (n.Has("dim")) attrs.Set("axis", n.Axis("dim", 0, x.rank()));
  const auto y = e.Ops("Unique", {x.id}, std::move(attrs), 4);
  n.Return(0, y[0]);
  n.Return(1, n.Has("dim") ? y[2] : e.ReshapeLike(y[2], x.id));
  n.Return(2, y[3]);
}

// As Unique, of neighbours alone.
void UniqueConsecutive(Lowering& n) {
  const Operand x = n.Arg("self");
  if (n.Has("dim") && x.rank() != 1) return n.Fail("slices of a tensor");
  Emitter& e = n.emit();
  const ValueId flat = Flat(e, x.id);
  const Num one = Num::Of(1);
  const Num end = Num::Of(INT64_MAX);
  // The first is new whatever it is.
  const ValueId first = e.Op("Equal", {e.Slice(flat, 0, Num::Of(0), one, one),
                                       e.Slice(flat, 0, Num::Of(0), one, one)});
  const ValueId changed = e.Op(
      "Not", {e.Op("Equal", {e.Slice(flat, 0, one, end, one),
                             e.Slice(flat, 0, Num::Of(0), Num::Of(-1), one)})});
  const ValueId fresh = e.Concat({first, changed}, 0);
  const ValueId number = e.Op(
      "CumSum",
      {e.Cast(fresh, DType::kBool, DType::kI64), e.Integer(0, DType::kI64)});
  const ValueId place = e.Op("Sub", {number, e.Integer(1, DType::kI64)});
  n.Return(0, e.Op("Compress", {flat, fresh}, {{"axis", int64_t{0}}}));
  n.Return(1, e.ReshapeLike(place, x.id));
  const ValueId begins = e.Op(
      "Compress", {UpTo(e, e.Value(e.SizeOf(flat, 0), DType::kI64)), fresh},
      {{"axis", int64_t{0}}});
  const ValueId ends = e.Concat(
      {e.Slice(begins, 0, one, end, one), e.List({e.SizeOf(flat, 0)})}, 0);
  n.Return(2, e.Op("Sub", {ends, begins}));
}

// Place i as often as repeats[i] says: of each step in the result, how many of
// the ends of the runs it has passed.
ValueId RepeatedPlaces(Emitter& e, const Operand& repeats) {
  const ValueId counts = e.Cast(repeats.id, repeats.dtype(), DType::kI64);
  const ValueId ends = e.Op("CumSum", {counts, e.Integer(0, DType::kI64)});
  const ValueId all = UpTo(e, e.Op("ReduceSum", {counts}, Dropped()));
  return CountTrue(e, e.Op("LessOrEqual", {ends, e.Unsqueeze(all, {1})}), 1);
}
void RepeatInterleave(Lowering& n) {
  const Operand repeats = n.Arg("repeats");
  if (repeats.rank() != 1) return n.Fail("a list of repeats is needed");
  n.ReturnAs(DType::kI64, RepeatedPlaces(n.emit(), repeats));
}
void RepeatSelf(Lowering& n) {
  const Operand x = n.Arg("self");
  const Operand repeats = n.Arg("repeats");
  if (repeats.rank() != 1) return n.Fail("a list of repeats is needed");
  Emitter& e = n.emit();
  const bool has_axis = n.Has("dim");
  n.Return(e.Op(
      "Gather", {has_axis ? x.id : Flat(e, x.id), RepeatedPlaces(e, repeats)},
      {{"axis", has_axis ? n.Axis("dim", 0, x.rank()) : int64_t{0}}}));
}

// The first `size` of what is not zero, filled up behind.
void NonZeroStatic(Lowering& n) {
  const Operand x = n.Arg("self");
  const int64_t size = n.Int("size", 0);
  if (size < 0 || size > (1 << 24)) return n.Fail("a list of this size");
  Emitter& e = n.emit();
  const ValueId found = e.Transpose(e.Op("NonZero", {x.id}), {1, 0});
  const ValueId fill = e.Expand(e.Integer(n.Int("fill_value", -1), DType::kI64),
                                e.Ints({size, x.rank()}));
  n.Return(e.Slice(e.Concat({found, fill}, 0), 0, Num::Of(0), Num::Of(size),
                   Num::Of(1)));
}

// ---- in order ----
ValueId Sorted(Lowering& n, ValueId x, const Num& size, int64_t axis) {
  return n.emit().Ops(
      "TopK", {x, n.emit().List({size})},
      {{"axis", axis}, {"largest", int64_t{0}}, {"sorted", int64_t{1}}}, 2)[0];
}

// The lower of two in the middle.
void MedianOfAll(Lowering& n) {
  Emitter& e = n.emit();
  const ValueId flat = Flat(e, n.In("self"));
  const Num size = e.SizeOf(flat, 0);
  const Num middle = e.FloorDiv(e.Sub(size, Num::Of(1)), Num::Of(2));
  n.Return(
      e.Op("Gather", {Sorted(n, flat, size, 0), e.Value(middle, DType::kI64)}));
}

// Between the two values about place q·(size - 1) of the sorted ones.
void QuantilesAt(Lowering& n, ValueId q, bool many) {
  const Operand x = n.Arg("self");
  if (n.Text("interpolation", "linear") != "linear") {
    return n.Fail("an interpolation other than 'linear'");
  }
  Emitter& e = n.emit();
  const bool all = !n.Has("dim");
  const int64_t axis = all ? 0 : n.Axis("dim", 0, x.rank());
  const int rank = all ? 1 : x.rank();
  ValueId sorted = all ? Flat(e, x.id) : x.id;
  const Num size = e.SizeOf(sorted, axis);
  sorted = Sorted(n, sorted, size, axis);
  // One list of places, which becomes the axis that was reduced.
  const ValueId last = e.Cast(e.Value(e.Sub(size, Num::Of(1)), DType::kI64),
                              DType::kI64, x.dtype());
  const ValueId place = e.Op("Mul", {Flat(e, q), last});
  const ValueId below = e.Op("Floor", {place});
  const auto at = [&](ValueId which) {
    return e.Op("Gather", {sorted, e.Cast(which, x.dtype(), DType::kI64)},
                {{"axis", axis}});
  };
  std::vector<int64_t> behind;
  for (int64_t i = 1; i < rank - axis; ++i) behind.push_back(i);
  const ValueId part = e.Unsqueeze(e.Op("Sub", {place, below}), behind);
  const ValueId low = at(below);
  const ValueId high = at(e.Op("Ceil", {place}));
  ValueId y = e.Op("Add", {low, e.Op("Mul", {e.Op("Sub", {high, low}), part})});
  const bool keep = n.Flag("keepdim", false);
  if (!many && all && keep) return n.Fail("keepdim of a whole tensor");
  if (!many) return n.Return(keep ? y : e.Squeeze(y, {axis}));
  if (all && keep) return n.Fail("keepdim of a whole tensor");
  // The list comes first.
  std::vector<int64_t> order = {axis};
  for (int64_t i = 0; i < rank; ++i) {
    if (i != axis) order.push_back(i);
  }
  y = e.Transpose(y, order);
  n.Return(keep ? e.Unsqueeze(y, {axis + 1}) : y);
}
void Quantile(Lowering& n) {
  const Operand x = n.Arg("self");
  QuantilesAt(n, n.emit().Value(n.Number("q"), x.dtype()), false);
}
void Quantiles(Lowering& n) {
  const Operand q = n.Arg("q");
  QuantilesAt(n, q.id, q.rank() == 1);
}

// ---- so far ----
void Extremes(Lowering& n, const char* op) {
  const Operand x = n.Arg("self");
  const auto both =
      n.emit().Ops(op, {x.id}, {{"axis", n.Axis("dim", 0, x.rank())}}, 2);
  n.Return(0, both[0]);
  n.Return(1, both[1]);
}
void CumMax(Lowering& n) { Extremes(n, "CumMax"); }
void CumMin(Lowering& n) { Extremes(n, "CumMin"); }
void LogCumSumExp(Lowering& n) {
  const Operand x = n.Arg("self");
  n.Return(n.emit().Op("CumLogSumExp", {x.id},
                       {{"axis", n.Axis("dim", 0, x.rank())}}));
}

constexpr AtenOp kRows[] = {
    {"aten.isin.Tensor_Tensor", IsIn},
    {"aten.isin.Tensor_Scalar", IsInNumber},
    {"aten.searchsorted.Tensor", SearchSorted},
    {"aten.bincount.default", BinCount},
    {"aten._unique2.default", Unique},
    {"aten.unique_dim.default", Unique},
    {"aten.unique_consecutive.default", UniqueConsecutive},
    {"aten.repeat_interleave.Tensor", RepeatInterleave},
    {"aten.repeat_interleave.self_Tensor", RepeatSelf},
    {"aten.nonzero_static.default", NonZeroStatic},
    {"aten.median.default", MedianOfAll},
    {"aten.quantile.scalar", Quantile},
    {"aten.quantile.default", Quantiles},
    {"aten.cummax.default", CumMax},
    {"aten.cummin.default", CumMin},
    {"aten.logcumsumexp.default", LogCumSumExp},
};

}  // namespace

std::span<const AtenOp> SearchRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
